/** A search that goes on: what no index finds is looked for further and further back, and how far is shown. */

import { useEffect, useState } from "preact/hooks";
import { api, take, type Task } from "../api/client";
import { count, plural } from "../format";
import { Bar, Button } from "../ui/basic";
import { type Filter, listQuery } from "./filter";

export interface Scan {
  /** Tasks found further back than the first answer reached. */
  found: Task[];
  /** Where the next page begins; null if everything was looked through. */
  next: string | null;
  /** Which part of the queue was looked through; null before it has begun. */
  looked: number | null;
  running: boolean;
  stop: () => void;
  go: () => void;
}

const NOTHING = { found: [] as Task[], next: null as string | null, looked: null as number | null, over: false };

/** `key` says what is searched; it goes on from `first` until `wanted` are found, all is seen, or somebody stops it. */
export function useScan(key: string, filter: Filter, first: string | null, looked: number | null, wanted: number): Scan {
  const [state, setState] = useState({ key, ...NOTHING });
  const [stopped, setStopped] = useState<string | null>(null);
  const mine = state.key === key ? state : { key, ...NOTHING };
  const from = mine.looked === null ? first : mine.next;
  const running = looked !== null && stopped !== key && !mine.over && from !== null && mine.found.length < wanted;

  useEffect(() => {
    if (!running) return;
    const controller = new AbortController();
    const query = { ...listQuery(filter), limit: wanted - mine.found.length, total: false, cursor: from! };
    take(api.GET("/api/tasks", { params: { query }, signal: controller.signal }))
      .then((page) =>
        setState({
          key,
          found: [...mine.found, ...page.tasks],
          next: page.nextCursor,
          looked: page.looked ?? mine.looked ?? looked,
          over: page.nextCursor === null,
        }),
      )
      .catch((error) => !controller.signal.aborted && error && setStopped(key));
    return () => controller.abort();
  }, [key, running, from]);

  return {
    found: mine.found,
    next: mine.looked === null ? first : mine.next,
    looked: mine.looked ?? looked,
    running,
    stop: () => setStopped(key),
    go: () => setStopped(null),
  };
}

/** How far it is, and how to stop it. */
export function ScanBar({ scan, shown, wanted }: { scan: Scan; shown: number; wanted: number }) {
  if (scan.looked === null || (!scan.running && (scan.next === null || shown >= wanted))) return null;
  const percent = `${Math.floor(scan.looked * 100)} %`;
  return (
    <div class="scan" role="status">
      <Bar part={scan.looked} label="Searched" />
      <span>
        {scan.running ? "Searching" : "Stopped"}: {percent} of the queue looked through, newest first; {shown ? plural(shown, "match", "matches") : "no match"} so far
        {shown >= wanted && ` (a page has ${count(wanted)})`}
      </span>
      {scan.running ? (
        <Button kind="small" onClick={scan.stop}>
          Stop
        </Button>
      ) : (
        <Button kind="small" onClick={scan.go}>
          Search further
        </Button>
      )}
    </div>
  );
}
