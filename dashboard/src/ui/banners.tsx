/** What holds tasks up and a person should know on every page: a pause, or types that nobody works on. */

import { signal } from "@preact/signals";
import { resume } from "../actions";
import { api, take } from "../api/client";
import { now } from "../clock";
import { count, plural, verb } from "../format";
import { snapshot } from "../live";
import { href, path } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Ago, Button } from "./basic";

const LOOKING = 5000;

/** Milliseconds for which a lost worker is worth a banner; the list of workers keeps it for a day. */
const NEWS = 3_600_000;
const dismissed = signal<string[]>(JSON.parse(sessionStorage.getItem("dismissed") ?? "[]") as string[]);

function dismiss(instances: string[]): void {
  dismissed.value = [...dismissed.value, ...instances].slice(-200);
  sessionStorage.setItem("dismissed", JSON.stringify(dismissed.value));
}

/** Workers that were killed or fell silent a moment ago, and what they had in hand. */
function LostWorkers() {
  const workers = useResource("lost workers", (signal) => take(api.GET("/api/workers", { params: { query: { limit: 1 } }, signal })), { live: true, every: LOOKING });
  const lost = (workers.data?.ended ?? []).filter(
    (each) => each.ending === "lost" && now.value - Date.parse(each.endedAt) < NEWS && !dismissed.value.includes(each.instance),
  );
  const [latest] = lost;
  if (!latest) return null;
  const tasks = lost.reduce((sum, each) => sum + each.tasks, 0);
  return (
    <div class="banner warn" role="status">
      <span>
        <strong>{lost.length > 1 ? `${plural(lost.length, "worker")} were lost` : `Worker ${latest.workerId} was lost`}</strong>{" "}
        <Ago at={latest.endedAt} />: {tasks ? `${plural(tasks, "task")} ${verb(tasks, "was", "were")} taken back and ${verb(tasks, "runs", "run")} again.` : "it held no tasks."}
      </span>
      <span class="banner-acts">
        <a href={href("/workers")}>Workers</a>
        <Button kind="plain" onClick={() => dismiss(lost.map((each) => each.instance))} label="Dismiss">
          ×
        </Button>
      </span>
    </div>
  );
}

/** More pauses than these are one banner, until somebody opens it. */
const MANY = 2;
const unfolded = signal(false);

function FoldedPauses({ types }: { types: (string | null)[] }) {
  const names = types.map((type) => type ?? "everything");
  return (
    <div class="banner warn" role="status">
      <span>
        <strong>{plural(types.length, "pause")}:</strong> {names.slice(0, 3).join(", ")}
        {names.length > 3 && ` and ${names.length - 3} more`}
      </span>
      <span class="banner-acts">
        <a href={href("/types")}>Types</a>
        <Button kind="small" onClick={() => (unfolded.value = true)}>
          Show all
        </Button>
      </span>
    </div>
  );
}

/** What could run now; what waits for its time, an event or a person needs no worker yet. */
const due = (each: { pending: number; delayed: number; waiting: number; retrying: number }): number => each.pending - each.delayed - each.waiting + each.retrying;

export function Banners() {
  const control = useResource("control", (signal) => take(api.GET("/api/control", { signal })), {
    live: true,
    every: LOOKING,
  });
  const types = useResource("types", (signal) => take(api.GET("/api/types", { signal })), { every: LOOKING });
  const alive = snapshot.value?.workersAlive;
  const unhandled = types.data?.types.filter((each) => !each.workers && due(each) > 0) ?? [];
  const waiting = unhandled.reduce((sum, each) => sum + due(each), 0);
  const pauses = control.data?.pauses ?? [];
  const folded = pauses.length > MANY && !unfolded.value;
  // The overview says all of this, and more, at its top.
  if (path.value === "/") return null;
  return (
    <>
      <LostWorkers />
      {folded && <FoldedPauses types={pauses.map((pause) => pause.type)} />}
      {(folded ? [] : pauses).map((pause) => (
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
              <strong>No running worker handles {unhandled.slice(0, 3).map((each) => each.type).join(", ")}</strong>
              {unhandled.length > 3 && ` and ${unhandled.length - 3} more`}, {count(waiting)} waiting
            </span>
            <a href={unhandled.length === 1 ? href("/types", { search: unhandled[0]!.type }) : href("/types")}>{unhandled.length === 1 ? "Type" : "Types"}</a>
          </div>
        )
      )}
    </>
  );
}
