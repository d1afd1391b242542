/** The time, for everything on the page that says how long ago something was: one timer for all. */

import { signal } from "@preact/signals";

/** Milliseconds that `now` may be behind. */
export const TICK = 1000;
export const now = signal(Date.now());

export function startClock(): void {
  setInterval(() => !document.hidden && (now.value = Date.now()), TICK);
}
