/** The last minutes, second by second, as this page has heard them: for the chart that moves. */

import { effect, signal } from "@preact/signals";
import { connection, snapshot, type Snapshot } from "./live";

export interface Sample {
  at: number;
  completed: number;
  failed: number;
  ready: number | null;
  running: number | null;
}

export const LIVE_SECONDS = 300;
export const samples = signal<Sample[]>([]);

interface Heard {
  at: number;
  snapshot: Snapshot;
}

const QUIET = 2500;
/** Milliseconds: news come more often, but a point for each would tremble. */
const STEP = 900;

/** Note the numbers as they come; what ended is the difference to those before. */
export function keepSamples(): void {
  let last: Heard | null = null;
  const note = (current: Snapshot) => {
    const next = { at: Date.now(), snapshot: current };
    if (last && next.at - last.at < STEP) return;
    if (last) samples.value = [...samples.peek().slice(-LIVE_SECONDS), between(last, next)];
    last = next;
  };
  effect(() => {
    // After a gap nobody knows in which second things happened.
    if (connection.value !== "live" || !snapshot.value) last = null;
    else note(snapshot.value);
  });
  // Where nothing happens nothing is told, and that is worth a point too.
  setInterval(() => {
    const current = snapshot.peek();
    if (current && last && !document.hidden && Date.now() - last.at > QUIET) note(current);
  }, 1000);
}

function between(before: Heard, after: Heard): Sample {
  const seconds = (after.at - before.at) / 1000 || 1;
  const [a, b] = [before.snapshot.stats, after.snapshot.stats];
  const rate = (was: number, is: number) => Math.max(0, is - was) / seconds;
  return {
    at: after.at / 1000,
    completed: rate(a.completed, b.completed),
    failed: rate(a.failed + a.buried, b.failed + b.buried),
    ready: b.pending - b.delayed - b.waiting + b.retrying,
    running: b.processing,
  };
}
