/** What holds tasks up and a person should know on every page: a pause, or types that nobody works on. */

import { resume } from "../actions";
import { api, take } from "../api/client";
import { plural, verb } from "../format";
import { snapshot } from "../live";
import { href } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Ago, Button } from "./basic";

const LOOKING = 5000;

export function Banners() {
  const control = useResource("control", (signal) => take(api.GET("/api/control", { signal })), {
    live: true,
    every: LOOKING,
  });
  const types = useResource("types", (signal) => take(api.GET("/api/types", { signal })), { every: LOOKING });
  const alive = snapshot.value?.workersAlive;
  const unhandled = types.data?.types.filter((each) => !each.workers && each.pending + each.retrying > 0) ?? [];
  const waiting = unhandled.reduce((sum, each) => sum + each.pending + each.retrying, 0);
  return (
    <>
      {control.data?.pauses.map((pause) => (
        <div key={pause.type ?? ""} class="banner warn" role="status">
          <span>
            <strong>{pause.type ? `${pause.type} is paused` : "Everything is paused"}</strong>
            {pause.by && ` by ${pause.by}`} <Ago at={pause.since} />
            {pause.reason && `: ${pause.reason}`}
          </span>
          {can("operate") && (
            <Button kind="small" onClick={() => void resume(pause.type).then(control.refresh)}>
              Resume
            </Button>
          )}
        </div>
      ))}
      {alive === 0 && waiting > 0 ? (
        <div class="banner warn" role="status">
          <span>
            <strong>No worker is alive.</strong> {plural(waiting, "task")} {verb(waiting, "waits", "wait")}. Start one: <code>tasklib worker app.tasks</code>
          </span>
          <a href={href("/workers")}>Workers</a>
        </div>
      ) : (
        unhandled.length > 0 && (
          <div class="banner warn" role="status">
            <span>
              <strong>Nobody handles {unhandled.slice(0, 3).map((each) => each.type).join(", ")}</strong>
              {unhandled.length > 3 && ` and ${unhandled.length - 3} more`}: {plural(waiting, "task")}{" "}
              {verb(waiting, "waits", "wait")} for a worker that knows {unhandled.length > 1 ? "them" : "it"}.
            </span>
            <a href={href("/types")}>Types</a>
          </div>
        )
      )}
    </>
  );
}
