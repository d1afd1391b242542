/** Series for charts. */

import { root } from "../router";
import { Problem } from "./client";

interface Durations {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

export interface Outcomes {
  completed: number;
  failed: number;
  retried: number;
  cancelled: number;
  buried: number;
}

export interface Point {
  at: string;
  ended: Outcomes;
  wait: Durations;
  run: Durations;
  depth: { due: number; delayed: number; retrying: number; running: number } | null;
}

export interface Series {
  stepSeconds: number;
  points: Point[];
}

export interface TypeWork {
  type: string;
  ended: Outcomes;
  wait: Durations;
  run: Durations;
}

export function getSeries(seconds: number, type: string, signal: AbortSignal): Promise<Series> {
  const query = new URLSearchParams({ seconds: String(seconds), ...(type ? { type } : {}) });
  return read(`/api/metrics/series?${query}`, signal);
}

export async function getTypesWork(seconds: number, signal: AbortSignal): Promise<TypeWork[]> {
  return (await read<{ types: TypeWork[] }>(`/api/metrics/types?seconds=${seconds}`, signal)).types;
}

async function read<T>(path: string, signal: AbortSignal): Promise<T> {
  const response = await fetch(root + path, { signal }).catch(() => null);
  if (!response) throw new Problem(0, "The service cannot be reached.");
  if (!response.ok) throw new Problem(response.status, response.statusText);
  return (await response.json()) as T;
}
