/** Series for charts. */

import { api, take } from "./client";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Series = Schemas["Series"];
export type TypeWork = Schemas["TypeWork"];

export function getSeries(seconds: number, type: string, signal: AbortSignal, until?: Date): Promise<Series> {
  const query = { seconds, ...(type ? { type } : {}), ...(until ? { until: until.toISOString() } : {}) };
  return take(api.GET("/api/metrics/series", { params: { query }, signal }));
}

export async function getTypesWork(seconds: number, signal: AbortSignal): Promise<TypeWork[]> {
  return (await take(api.GET("/api/metrics/types", { params: { query: { seconds } }, signal }))).types;
}
