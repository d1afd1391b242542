/** What was changed and when: releases, losses and what people did, as lines through any picture of time, told in words. */

import { api, take } from "../api/client";
import type { components } from "../api/schema";
import { timeOfDay } from "../format";
import { useResource } from "../resource";
import "../styles/changes.css";

export type Change = components["schemas"]["ChangeInfo"];

/** Seconds: as far back as the service tells, and steps by which what is asked for grows while time passes. */
const [LONGEST, STEP] = [30 * 86_400, 600];

export const useChanges = (seconds: number): Change[] => useKnownChanges(seconds) ?? [];

/** Null until they are read: then nothing is known, which is not that nothing was changed. */
export function useKnownChanges(seconds: number): Change[] | null {
  const asked = Math.min(Math.max(Math.ceil(seconds / STEP), 1) * STEP, LONGEST);
  const found = useResource(
    `changes ${asked}`,
    (signal) => take(api.GET("/api/changes", { params: { query: { seconds: asked } }, signal })),
    { every: 15_000 },
  );
  return found.data?.changes ?? null;
}

/** Colours of changes; workers that start and stop in order are not worth a line. */
export const MARKED: Record<string, string> = { release: "accent", worker_lost: "bad", action: "warn" };

export const toldOf = (change: Change): string => `${timeOfDay(change.at)}: ${change.text}`;

/** Those that are worth a line and were made from one moment to another, in milliseconds since 1970. */
export const markedOf = (changes: Change[], since: number, until: number): Change[] =>
  changes.filter(({ kind, at }) => MARKED[kind] && Date.parse(at) >= since && Date.parse(at) <= until);

interface LinesProps {
  changes: Change[];
  /** Milliseconds since 1970. */
  since: number;
  until: number;
  /** Where a moment is. */
  x: (at: number) => number;
  height: number;
}

/** Each with words for the pointer, which need not meet the line itself. */
export function ChangeLines({ changes, since, until, x, height }: LinesProps) {
  return (
    <>
      {markedOf(changes, since, until).map((change) => {
        const ends = { x1: x(Date.parse(change.at)), x2: x(Date.parse(change.at)), y1: 0, y2: height };
        return (
          <g key={`${change.at} ${change.text}`} class={`change ${MARKED[change.kind]}`}>
            <title>{toldOf(change)}</title>
            <line class="change-reach" {...ends} />
            <line class="change-line" {...ends} />
          </g>
        );
      })}
    </>
  );
}
