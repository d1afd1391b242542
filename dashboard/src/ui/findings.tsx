/** What is wrong now, as the service ranks it, and what can be done about each finding. */

import { resume } from "../actions";
import { api, take } from "../api/client";
import type { components } from "../api/schema";
import { href } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Button } from "./basic";

export type Finding = components["schemas"]["FindingInfo"];
export type Action = Finding["actions"][0];

const LOOKING = 5000;

/** Findings of one kind and severity beside the first of them, told in one line. */
export interface Alike {
  key: string;
  severity: Finding["severity"];
  text: string;
  all: Finding[];
}

/** More of one kind and severity than these are told together. */
const MANY = 3;
const NAMES = 3;
const KINDS: Record<string, string> = {
  paused: "pauses",
  unhandled: "types that no running worker handles",
  parked: "types with parked tasks",
  new_error: "new errors",
  error_again: "errors that are back",
  worker_lost: "lost workers",
  worker_silent: "workers that have stopped sending heartbeats",
  stuck_threads: "workers with stuck threads",
  schedule_broken: "schedules that cannot run",
  schedule_missed: "schedules that missed their run",
  objective_at_risk: "objectives that are missed or at risk",
};

/** The findings in their order; where there are many of a kind the first of them, and the others together, unless `open`. */
export function foldAlike(findings: Finding[], open: string[]): (Finding | Alike)[] {
  const keyOf = (each: Finding) => `${each.code} ${each.severity}`;
  const kinds = new Map<string, Finding[]>();
  for (const each of findings) kinds.set(keyOf(each), [...(kinds.get(keyOf(each)) ?? []), each]);
  return findings.flatMap((each): (Finding | Alike)[] => {
    const key = keyOf(each);
    const [first, ...all] = kinds.get(key)!;
    if (all.length < MANY || !(each.code in KINDS) || open.includes(key) || each === first) return [each];
    return each === all[0] ? [{ key, severity: each.severity, text: together(all), all }] : [];
  });
}

/** How many things are wrong: one finding may tell of many. */
export const countAlike = (all: Finding[]): number => all.reduce((sum, each) => sum + each.alike, 0);

function together(all: Finding[]): string {
  const names = [...new Set(all.map((each) => each.type).filter(Boolean))];
  const named = names.length > NAMES ? ` and ${names.length - NAMES} more` : "";
  const more = countAlike(all) > all.length ? ", …" : named;
  return `${countAlike(all)} more ${KINDS[all[0]!.code]}${names.length ? `: ${names.slice(0, NAMES).join(", ")}${more}` : ""}`;
}

export function useFindings(wanted = true) {
  return useResource(wanted ? "findings" : null, (signal) => take(api.GET("/api/findings", { signal })), { live: true, every: LOOKING });
}

interface ActProps {
  action: Action;
  /** What is done is done, and there may be nothing wrong any more. */
  done: () => void;
  /** Ask what else must be known before it is done; without it there is no button for that. */
  ask?: () => void;
}

/** A button for what is done here, a link to where one looks. */
export function Act({ action, ask, done }: ActProps) {
  const { label, target } = action;
  switch (action.action) {
    case "resume":
      return can("operate") ? (
        <Button kind="small" label={target ? `Resume ${target}` : "Resume everything"} onClick={() => void resume(target).then(done)}>
          {label}
        </Button>
      ) : null;
    case "redrive":
    case "limits":
      return can("operate") && ask ? (
        <Button kind="small" onClick={ask}>
          {label}
        </Button>
      ) : null;
    case "tasks":
      return <a href={href("/tasks", { type: target ?? undefined, status: ["pending", "retrying"] })}>{label}</a>;
    case "task":
      return <a href={href(`/tasks/${target}`)}>{label}</a>;
    case "errors":
      return <a href={href(target ? `/errors/${target}` : "/errors")}>{label}</a>;
    case "latency":
      return <a href={href("/latency", { type: target ?? undefined })}>{label}</a>;
    default:
      return <a href={href(`/${action.action}`)}>{label}</a>;
  }
}
