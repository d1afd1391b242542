/** ⌘K: every page, type, task and action, found by typing. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { resume } from "../actions";
import { stats } from "../live";
import { go, href } from "../router";
import { can } from "../session";
import { Dialog } from "./dialog";
import { openSubmit } from "./submit";
import { open as openView, views } from "./views";

export const paletteShown = signal(false);

interface Choice {
  text: string;
  hint: string;
  run: () => void;
}

const PAGES: [string, string][] = [
  ["Overview", "/"],
  ["Tasks", "/tasks"],
  ["Failed tasks", "/tasks?status=failed&status=buried"],
  ["Running tasks", "/tasks?status=processing"],
  ["Errors", "/errors"],
  ["Workers", "/workers"],
  ["Schedules", "/schedules"],
  ["Questions", "/questions"],
  ["Types", "/types"],
  ["Latency", "/latency"],
  ["Lanes", "/lanes"],
  ["Report", "/report"],
  ["Settings", "/settings"],
];
const MOST = 12;
/** What may be an id: whole, or its last eight digits as lists show them. */
const ID = /^[0-9a-f-]{8,36}$/i;

function choices(text: string): Choice[] {
  const wanted = text.trim().toLowerCase();
  const page = ([name, to]: [string, string]): Choice => ({ text: name, hint: "page", run: () => go(href("") + to) });
  const acts: Choice[] = can("operate")
    ? [
        { text: "New task …", hint: "action", run: () => openSubmit() },
        { text: "Resume everything", hint: "action", run: () => void resume(null) },
      ]
    : [];
  const types = Object.keys(stats.value?.byType ?? {}).map(
    (name): Choice => ({ text: name, hint: "type", run: () => go(href("/tasks", { type: name })) }),
  );
  const kept = views.value.map((view): Choice => ({ text: view.name, hint: "view", run: () => openView(view) }));
  const found = [...PAGES.map(page), ...kept, ...acts, ...types].filter((each) => each.text.toLowerCase().includes(wanted));
  const searched: Choice[] = wanted
    ? [{ text: `Search tasks for “${text.trim()}”`, hint: ID.test(wanted) ? "id" : "search", run: () => go(href("/tasks", { search: text.trim() })) }]
    : [];
  return (ID.test(wanted) ? [...searched, ...found] : [...found.slice(0, MOST - 1), ...searched]).slice(0, MOST);
}

export function Palette() {
  return paletteShown.value ? <Open /> : null;
}

function Open() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const close = () => (paletteShown.value = false);
  const found = choices(text);
  const chosen = Math.min(at, found.length - 1);
  const run = (choice: Choice | undefined) => {
    close();
    choice?.run();
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((chosen + step + found.length) % Math.max(found.length, 1));
    else if (event.key === "Enter") run(found[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={close}>
      <div class="dialog-body palette">
        <input
          autofocus
          role="combobox"
          aria-expanded="true"
          aria-controls="palette"
          aria-activedescendant={`palette-${chosen}`}
          aria-label="Page, type, id or action"
          placeholder="Page, type, id or action"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={press}
        />
        <ul id="palette" role="listbox" aria-label="Found">
          {found.map((each, place) => (
            <li key={each.hint + each.text} id={`palette-${place}`} role="option" aria-selected={place === chosen} onClick={() => run(each)}>
              {each.text} <span class="hint">{each.hint}</span>
            </li>
          ))}
        </ul>
      </div>
    </Dialog>
  );
}
