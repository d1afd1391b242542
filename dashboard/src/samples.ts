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
/** Milliseconds over which a rate is taken: two failures in one second are not two a second. */
const [SHORTEST, LONGEST] = [2700, 10_000];

/** Note the numbers as they come; a rate is the difference to those of some seconds before. */
export function keepSamples(): void {
  let heard: Heard[] = [];
  const note = (current: Snapshot) => {
    const next = { at: Date.now(), snapshot: current };
    const last = heard.at(-1);
    if (last && next.at - last.at < STEP) return;
    heard = [...heard.filter((each) => next.at - each.at <= LONGEST), next];
    const first = heard.length > 1 ? heard[0] : last;
    if (first && next.at - first.at >= SHORTEST) {
      samples.value = [...samples.peek().slice(-LIVE_SECONDS), between(first, next)];
    }
  };
  effect(() => {
    // After a gap nobody knows in which second things happened.
    if (connection.value !== "live" || !snapshot.value) heard = [];
    else note(snapshot.value);
  });
  // Where nothing happens nothing is sent, and that is worth a point too.
  setInterval(() => {
    const current = snapshot.peek();
    const last = heard.at(-1);
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
