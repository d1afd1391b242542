/** What the service tells by itself: numbers as they change, and whether we still hear it. */

import { computed, effect, signal } from "@preact/signals";
import { alone, api, databaseAway, Problem, type Stats, take } from "./api/client";
import { root } from "./router";

export interface Snapshot {
  stats: Stats;
  paused: boolean;
  workersAlive: number;
}

/** `database`: the service answers, but its database does not. */
export type Connection = "connecting" | "live" | "lost" | "database" | "held";

export const snapshot = signal<Snapshot | null>(null);
export const connection = signal<Connection>("connecting");
/** Grows with every piece of news: what shows tasks reads them again. */
export const tick = signal(0);
/** Grows with everything that is done on this page: whatever it shows is read again. */
export const acted = signal(0);
export const lastHeard = signal<number | null>(null);
export const stats = computed(() => snapshot.value?.stats ?? null);

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 8000;
/** The service sends something every 5 seconds: after so many milliseconds without, it is not there. */
const SILENCE = 12_000;
let source: EventSource | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let silence: ReturnType<typeof setTimeout> | undefined;
let wait = FIRST_WAIT;

/** Listen for as long as somebody looks; a hidden page costs the service nothing. */
export function listen(): void {
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : restart()));
  addEventListener("online", restart);
  addEventListener("offline", lose);
  // Without a stream any answer may tell why there is none.
  effect(() => {
    const state = connection.value;
    if (databaseAway.value && (state === "connecting" || state === "lost")) connection.value = "database";
  });
  restart();
}

/** Let the page stand still, or go on. */
export function hold(held: boolean): void {
  if (held) {
    stop();
    connection.value = "held";
  } else {
    connection.value = "connecting";
    restart();
  }
}

/** Do something while this page neither listens nor asks anything else. */
export async function inSilence<T>(work: Parameters<typeof alone<T>>[0]): Promise<T> {
  const held = connection.peek() === "held";
  hold(true);
  try {
    return await alone(work);
  } finally {
    hold(held);
  }
}

/** Ask again now instead of after the wait. */
export function restart(): void {
  if (connection.value === "held" || document.hidden) return;
  stop();
  source = new EventSource(`${root}/api/events`);
  source.addEventListener("snapshot", (event) => {
    snapshot.value = JSON.parse((event as MessageEvent<string>).data) as Snapshot;
    hear("live");
    tick.value++;
  });
  source.addEventListener("beat", () => hear("live"));
  source.addEventListener("trouble", () => hear("database"));
  source.addEventListener("error", lose);
  silence = setTimeout(lose, SILENCE);
}

function hear(state: "live" | "database"): void {
  clearTimeout(silence);
  silence = setTimeout(lose, SILENCE);
  connection.value = state;
  if (state === "live") lastHeard.value = Date.now();
  wait = FIRST_WAIT;
}

function stop(): void {
  clearTimeout(timer);
  clearTimeout(silence);
  source?.close();
  source = null;
}

function lose(): void {
  if (connection.value === "held" || document.hidden) return;
  stop();
  if (connection.value !== "database") connection.value = "lost";
  timer = setTimeout(restart, wait);
  wait = Math.min(wait * 2, LONGEST_WAIT);
  // A stream does not say why it ended. If it was because the token is not good any more, this leads to the sign-in.
  take(api.GET("/api/session")).catch((error) => {
    if (connection.value === "database" && !(error instanceof Problem && error.ofDatabase)) connection.value = "lost";
  });
}
