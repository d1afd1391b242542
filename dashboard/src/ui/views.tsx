/** Views of a page that somebody keeps: a name for an address, in this browser. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { go, href, path, query } from "../router";
import { sayUndoable } from "../toasts";
import { Button } from "./basic";
import { FormDialog } from "./dialog";

export interface View {
  name: string;
  path: string;
  search: string;
}

const PLACE = "views";
const MOST = 30;

function stored(): View[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    return Array.isArray(found) ? (found as View[]).filter((each) => typeof each?.name === "string" && typeof each.path === "string" && typeof each.search === "string") : [];
  } catch {
    return [];
  }
}

export const views = signal<View[]>(stored());

function keep(next: View[]): void {
  views.value = next.slice(-MOST);
  localStorage.setItem(PLACE, JSON.stringify(views.value));
}

export const open = (view: View): void => go(href(view.path) + (view.search ? `?${view.search}` : ""));

/** The views of this page, and keeping what is shown now. */
export function Views() {
  const [asking, setAsking] = useState(false);
  const now = new URLSearchParams(query.value);
  now.delete("at");
  const search = now.toString();
  const here = views.value.filter((each) => each.path === path.value);
  const kept = here.some((each) => each.search === search);
  const remove = (view: View) => {
    const before = views.value;
    keep(before.filter((each) => each !== view));
    sayUndoable(`The view ${view.name} is removed.`, async () => keep(before));
  };
  if (!here.length && !search) return null;
  return (
    <div class="views" role="group" aria-label="Saved views">
      {here.map((view) => (
        <span key={view.name} class="tag view">
          <button type="button" class="plain" aria-pressed={view.search === search} onClick={() => open(view)}>
            {view.name}
          </button>
          <button type="button" class="plain" aria-label={`Remove the view ${view.name}`} onClick={() => remove(view)}>
            ×
          </button>
        </span>
      ))}
      {search && !kept && (
        <Button kind="small" onClick={() => setAsking(true)}>
          Save view …
        </Button>
      )}
      {asking && (
        <FormDialog
          title="Save this view"
          verb="Save"
          onClose={() => setAsking(false)}
          send={async (form) => {
            const name = (form.get("name") as string).trim();
            keep([...views.value.filter((each) => each.name !== name || each.path !== path.value), { name, path: path.value, search }]);
          }}
        >
          <label class="field stacked">
            Name
            <input name="name" required maxLength={60} autofocus autoComplete="off" />
          </label>
          <p class="soft">It is kept in this browser. Its address, which others can open, is the one above.</p>
        </FormDialog>
      )}
    </div>
  );
}
