/** The keyboard: every key works outside of text fields, and all are listed by `?`. */

import { signal } from "@preact/signals";
import { go, href } from "./router";
import { paletteShown } from "./ui/palette";

export const helpShown = signal(false);

export const KEYS: [string, string][] = [
  ["/", "Search"],
  ["⌘K  Ctrl K", "Go to a page, a type, a task; or do something"],
  ["j  k", "Next and previous row"],
  ["Enter", "Open the row"],
  ["x", "Select the row"],
  ["g o  g t  g e", "Go to the overview, tasks, errors"],
  ["g w  g s  g y  g l", "Go to workers, schedules, types, latency"],
  ["?", "This list"],
  ["Esc", "Close, or leave a field"],
];
const PLACES: Record<string, string> = { o: "/", t: "/tasks", e: "/errors", w: "/workers", s: "/schedules", y: "/types", l: "/latency" };

let leader = false;

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      paletteShown.value = !paletteShown.value;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target.closest("input:not([type=checkbox]), textarea, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (press(event.key)) event.preventDefault();
  });
}

function press(key: string): boolean {
  if (leader) {
    leader = false;
    const place = PLACES[key];
    if (place) go(href(place));
    return Boolean(place);
  }
  switch (key) {
    case "g":
      return (leader = true);
    case "?":
      return (helpShown.value = true);
    case "/":
      return search();
    case "j":
      return move(1);
    case "k":
      return move(-1);
    case "x":
      return select();
    default:
      return false;
  }
}

function search(): boolean {
  const field = document.querySelector<HTMLInputElement>("[data-search]");
  if (field) field.select(), field.focus();
  else go(href("/tasks")), setTimeout(search, 50);
  return true;
}

function move(step: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row] .row-link")];
  const at = rows.findIndex((row) => row === document.activeElement?.closest("[data-row]")?.querySelector(".row-link"));
  const next = rows[at === -1 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + step))];
  next?.focus();
  return Boolean(next);
}

function select(): boolean {
  const box = document.activeElement?.closest("[data-row]")?.querySelector<HTMLInputElement>("input[type=checkbox]");
  box?.click();
  return Boolean(box);
}
