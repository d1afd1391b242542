/** The life of one task as a picture: how long it waited, ran, failed and waited again. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Attempt, TaskDetail } from "../api/client";
import { now } from "../clock";
import { absolute, span, timeOfDay } from "../format";

interface Piece {
  kind: "delayed" | "waited" | "completed" | "failed" | "running" | "retry" | "cancelled" | "lost" | "ended" | "suspended";
  from: number;
  to: number;
  text: string;
  attempt: number | undefined;
}

const NAMES: Record<Piece["kind"], string> = {
  delayed: "waited for its time",
  waited: "waited for a worker",
  completed: "ran and completed",
  failed: "ran and failed",
  running: "runs",
  retry: "waits for its retry",
  cancelled: "ran and was stopped",
  lost: "its worker was lost",
  ended: "had ended, then retried by hand",
  suspended: "ran its steps and waited for what they need",
};

/** Pixels that a letter in the picture takes at most. */
const LETTER = 7;

/** `recorded`: it is a workflow, so between its attempts it waited for what its steps need, and not for a worker. */
export function Timeline({ task, recorded }: { task: TaskDetail; recorded: boolean }) {
  const [first, ...rest] = piecesOf(task, now.value, recorded);
  return first ? <Picture first={first} rest={rest} /> : null;
}

function Picture({ first, rest }: { first: Piece; rest: Piece[] }) {
  const [figure, pixels] = useWidth();
  const pieces = [first, ...rest];
  const last = rest[rest.length - 1] ?? first;
  const placed = place(pieces);
  const kinds = [...new Set(pieces.map((piece) => piece.kind))];
  const told = pieces.map((piece) => `${piece.text} ${span((piece.to - piece.from) / 1000)}`).join(", then ");
  return (
    <figure class="timeline" ref={figure}>
      <svg role="img" aria-label={`Timeline: ${told}`} height="44" width="100%">
        {placed.map(({ piece, x, width }, at) => (
          <g key={at}>
            <rect class={`t-${piece.kind}`} x={`${x}%`} y="4" width={`${width}%`} height="26" rx="3">
              <title>{`${piece.text}: ${span((piece.to - piece.from) / 1000)}, from ${absolute(piece.from)}`}</title>
            </rect>
            <text class="t-text" x={`${x + width / 2}%`} y="21" text-anchor="middle">
              {labels(piece).find((label) => (label.length + 1) * LETTER < (width / 100) * pixels)}
            </text>
          </g>
        ))}
        <text class="t-edge" x="0" y="43">
          {absolute(first.from)}
        </text>
        {pixels > 480 && (
          <text class="t-edge" x="50%" y="43" text-anchor="middle">
            {span((last.to - first.from) / 1000)} in all
          </text>
        )}
        <text class="t-edge" x="100%" y="43" text-anchor="end">
          {sameDay(first.from, last.to) ? timeOfDay(last.to) : absolute(last.to)}
        </text>
      </svg>
      <figcaption>
        {kinds.map((kind) => (
          <span key={kind} class="key">
            <i class={`dot t-${kind}`} />
            {NAMES[kind]}
          </span>
        ))}
        {pieces.length > 1 && <span>Long spans are shortened.</span>}
      </figcaption>
    </figure>
  );
}

/** How wide the element is, now and whenever that changes. */
function useWidth() {
  const element = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    resized.observe(element.current!);
    return () => resized.disconnect();
  }, []);
  return [element, width] as const;
}

/** What can stand in a piece, the most telling first. */
function labels({ from, to, attempt }: Piece): string[] {
  const lasted = span((to - from) / 1000);
  return attempt ? [`#${attempt} · ${lasted}`, lasted, `#${attempt}`] : [lasted];
}

function piecesOf(task: TaskDetail, now: number, recorded: boolean): Piece[] {
  const pieces: Piece[] = [];
  let at = Date.parse(task.createdAt);
  const add = (kind: Piece["kind"], to: number, text: string, attempt?: number) => {
    if (to > at || kind !== "waited") pieces.push({ kind, from: at, to: Math.max(to, at), text, attempt });
    at = Math.max(at, to);
  };
  const wait = (to: number, why: "first" | "retry" | "by hand") => {
    const due = task.runAfter && !pieces.length ? Date.parse(task.runAfter) : 0;
    if (due > at) add("delayed", Math.min(due, to), "waited for its time");
    if (to <= at) return;
    if (recorded && why === "first") add("suspended", to, "ran its steps and waited");
    else if (why === "by hand") add("ended", to, "had ended, then was retried by hand and waited");
    else add(why === "retry" ? "retry" : "waited", to, why === "retry" ? "waited for its retry" : "waited");
  };
  for (const each of numbered(task.history)) {
    const { attempt, place } = each;
    if (!attempt.startedAt || !attempt.endedAt) continue;
    wait(Date.parse(attempt.startedAt), each.byHand ? "by hand" : place > 1 ? "retry" : "first");
    add(kindOf(attempt), Date.parse(attempt.endedAt), `attempt ${place} ${attempt.outcome} after`, place);
  }
  // Fewer attempts than were made: somebody has let it start again from zero.
  const before = task.history.length;
  const byHand = before > 0 && task.attempts <= (task.status === "processing" ? 1 : 0) && !task.completedAt;
  if (task.status === "processing" && task.lastAttemptAt) {
    wait(Date.parse(task.lastAttemptAt), byHand ? "by hand" : before ? "retry" : "first");
    add("running", now, `attempt ${before + 1} has been running for`, before + 1);
  } else if (!task.completedAt) {
    if (byHand) wait(Math.min(Date.parse(task.updatedAt), now), "by hand");
    if (task.waitsFor) add("suspended", now, `waits for ${task.waitsFor} since`);
    wait(now, task.status === "failed" ? "retry" : "first");
  }
  return pieces;
}

interface Numbered {
  attempt: Attempt;
  /** Which one it is of all that are remembered, counted on over retries by hand. */
  place: number;
  /** Somebody let the task start again from zero before it. */
  byHand: boolean;
}

export function numbered(history: Attempt[]): Numbered[] {
  return history.map((attempt, at) => ({
    attempt,
    place: at + 1,
    byHand: at > 0 && attempt.number <= (history[at - 1]?.number ?? 0),
  }));
}

const sameDay = (a: number, b: number) => new Date(a).toDateString() === new Date(b).toDateString();

function kindOf(attempt: Attempt): Piece["kind"] {
  if (attempt.outcome === "completed") return "completed";
  if (attempt.outcome === "cancelled") return "cancelled";
  return attempt.outcome === "lost" ? "lost" : "failed";
}

/** Widths by the square root of the time, so that a run of milliseconds is seen beside an hour of waiting. */
function place(pieces: Piece[]) {
  const weights = pieces.map((piece) => Math.sqrt(Math.max(piece.to - piece.from, 0)));
  const most = Math.max(...weights, 1);
  const widened = weights.map((weight) => Math.max(weight, most * 0.03));
  const sum = widened.reduce((a, b) => a + b, 0);
  let x = 0;
  return pieces.map((piece, index) => {
    const width = ((widened[index] ?? 0) / sum) * 100;
    x += width;
    return { piece, x: x - width, width: Math.max(width - 0.3, 0.3) };
  });
}
