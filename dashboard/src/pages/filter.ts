/** Which tasks the list shows: read from the address, and turned into what the service is asked. */

import type { BulkFilter, Stats } from "../api/client";

export const STATUSES = [
  "pending",
  "delayed",
  "waiting",
  "processing",
  "completed",
  "failed",
  "retrying",
  "cancelled",
  "buried",
] as const;
export type StatusName = (typeof STATUSES)[number];
export const PERIODS: Record<string, [string, number]> = {
  "15m": ["Last 15 minutes", 15],
  "1h": ["Last hour", 60],
  "24h": ["Last 24 hours", 1440],
  "7d": ["Last 7 days", 10_080],
};

export interface Filter {
  type: string;
  statuses: StatusName[];
  search: string;
  fingerprint: string;
  tags: string[];
  since: string;
  after: string;
  before: string;
  endedAfter: string;
  endedBefore: string;
}

export function filterOf(query: URLSearchParams): Filter {
  const known = query.getAll("status").filter((each): each is StatusName => STATUSES.includes(each as StatusName));
  return {
    type: query.get("type") ?? "",
    statuses: known,
    search: query.get("search") ?? "",
    fingerprint: query.get("fingerprint") ?? "",
    tags: query.getAll("tag").filter((each) => each.indexOf("=") > 0),
    since: query.get("since") ?? "",
    after: query.get("after") ?? "",
    before: query.get("before") ?? "",
    endedAfter: query.get("endedAfter") ?? "",
    endedBefore: query.get("endedBefore") ?? "",
  };
}

/** The filter as the service takes it for acting on all that match; to the minute, so that it keeps. */
export function criteria(filter: Filter): BulkFilter {
  const minutes = PERIODS[filter.since]?.[1];
  const after = minutes ? new Date(Math.floor(Date.now() / 60_000 - minutes) * 60_000).toISOString() : moment(filter.after);
  const before = moment(filter.before);
  const endedAfter = moment(filter.endedAfter);
  const endedBefore = moment(filter.endedBefore);
  const tags = Object.fromEntries(filter.tags.map((tag) => [tag.slice(0, tag.indexOf("=")), tag.slice(tag.indexOf("=") + 1)]));
  return {
    ...(filter.type ? { type: filter.type } : {}),
    ...(filter.statuses.length ? { status: filter.statuses } : {}),
    ...(filter.search ? { search: filter.search } : {}),
    ...(filter.fingerprint ? { fingerprint: filter.fingerprint } : {}),
    ...(after ? { createdAfter: after } : {}),
    ...(before ? { createdBefore: before } : {}),
    ...(endedAfter ? { completedAfter: endedAfter } : {}),
    ...(endedBefore ? { completedBefore: endedBefore } : {}),
    ...(filter.tags.length ? { tags } : {}),
  };
}

/** The same for the list, where tags are written as text. */
export function listQuery(filter: Filter) {
  const { tags: _, ids: __, ...same } = criteria(filter);
  return { ...same, ...(filter.tags.length ? { tag: filter.tags } : {}) };
}

export const isEmpty = (filter: Filter): boolean => Object.keys(criteria(filter)).length === 0;

/** How many match, if the live numbers say so; null if the service has to count. */
export function countFrom(stats: Stats | null, filter: Filter): number | null {
  const { type: _, status: __, ...others } = criteria(filter);
  if (!stats || Object.keys(others).length) return null;
  const numbers = (filter.type ? (stats.byType[filter.type] ?? {}) : stats) as Record<string, number>;
  const wanted = new Set<string>(filter.statuses.length ? filter.statuses : ["pending", "processing", "completed", "failed", "cancelled", "buried"]);
  // Delayed and waiting tasks are pending ones too, and those that wait for a retry are failed.
  if (wanted.has("pending")) ["delayed", "waiting"].forEach((part) => wanted.delete(part));
  if (wanted.has("failed")) wanted.delete("retrying");
  return [...wanted].reduce((sum, each) => sum + (numbers[each] ?? 0), 0);
}

function moment(local: string): string | null {
  const parsed = local ? new Date(local) : null;
  return parsed && !Number.isNaN(parsed.valueOf()) ? parsed.toISOString() : null;
}
