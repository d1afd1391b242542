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
      return <a href={href(`/errors/${target}`)}>{label}</a>;
    case "latency":
      return <a href={href("/latency", { type: target ?? undefined })}>{label}</a>;
    default:
      return <a href={href(`/${action.action}`)}>{label}</a>;
  }
}
