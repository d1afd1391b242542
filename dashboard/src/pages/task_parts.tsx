/** What the page of a task is made of: how far it is, its attempts, why it waits, its facts and its log. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { act, resume } from "../actions";
import { api, type Explained, take, type TaskDetail } from "../api/client";
import { now } from "../clock";
import { lastLine, plural, readable, seconds, span } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Ago, Badge, Bar, Button, Copy, Loading, Panel, shownStatus } from "../ui/basic";
import { LimitDialog } from "../ui/controls";
import { Unread } from "../ui/listed";
import { numbered } from "../ui/timeline";
import { Trace } from "../ui/trace";

export function Progress({ task }: { task: TaskDetail }) {
  if (task.status !== "processing" || (task.progress === null && !task.progressMessage)) return null;
  return (
    <div class="progress-line" role="status">
      <Bar part={task.progress ?? 0} label="Progress" />
      <span>
        {Math.round((task.progress ?? 0) * 100)} %{task.progressMessage && ` · ${task.progressMessage}`}
      </span>
    </div>
  );
}

export function Attempts({ task }: { task: TaskDetail }) {
  if (!task.history.length) return null;
  return (
    <table class="rows attempts-table">
      <thead>
        <tr>
          <th>Attempt</th>
          <th>Outcome</th>
          <th>Started</th>
          <th class="number">Run time</th>
          <th>Worker</th>
        </tr>
      </thead>
      <tbody>
        {numbered(task.history).reverse().map(({ attempt, place, byHand }) => (
          <AttemptRow key={place} attempt={attempt} place={place} byHand={byHand} latest={place === task.history.length} />
        ))}
      </tbody>
    </table>
  );
}

interface AttemptProps {
  attempt: TaskDetail["history"][0];
  place: number;
  byHand: boolean;
  /** Its traceback stands on the page anyway. */
  latest: boolean;
}

function AttemptRow({ attempt, place, byHand, latest }: AttemptProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <tr>
            <td class="which">
              {place}
              {byHand && <div class="hint">retried by hand</div>}
            </td>
            <td>
              <span class={`outcome ${attempt.outcome === "completed" ? "good" : "bad"}`}>{attempt.outcome}</span>{" "}
              {attempt.error && <span class="preview">{attempt.error}</span>}
              {attempt.traceback && !latest && (
                <Button kind="plain" onClick={() => setOpen(!open)} label={`Traceback of attempt ${place}`} expanded={open}>
                  {open ? "Hide traceback" : "Traceback"}
                </Button>
              )}
            </td>
            <td>
              <Ago at={attempt.startedAt} />
            </td>
            <td class="number">
              {attempt.startedAt && attempt.endedAt ? span(seconds(attempt.startedAt, attempt.endedAt)) : "–"}
            </td>
            <td>
              {attempt.workerId ? <WorkerLink id={attempt.workerId} /> : "–"}
              {attempt.release && (
                <div class="hint">
                  release <a href={href("/tasks", { search: `release:${quoted(attempt.release)}` })}>{attempt.release}</a>
                </div>
              )}
            </td>
      </tr>
      {open && attempt.traceback && (
        <tr class="attempt-trace">
          <td colSpan={5}>
            <Trace error={attempt.traceback} />
          </td>
        </tr>
      )}
    </>
  );
}

const quoted = (text: string): string => (/\s/.test(text) ? `"${text}"` : text);

/** What a worker ran: its tasks. */
function WorkerLink({ id }: { id: string }) {
  return (
    <a href={href("/tasks", { search: `worker:${quoted(id)}` })} title={`Tasks of ${id}`}>
      <code>{id}</code>
    </a>
  );
}

export function Why({ task }: { task: TaskDetail }) {
  const waiting = task.completedAt === null;
  const found = useResource(
    `why ${task.id} ${task.status} ${task.version} ${task.updatedAt}`,
    (signal) => take(api.GET("/api/tasks/{task_id}/explain", { params: { path: { task_id: task.id } }, signal })),
    { every: waiting ? 2000 : undefined },
  );
  const running = task.status === "processing";
  return (
    <Panel title={waiting && !running ? "Why isn’t it running?" : "Explanation"} class="why">
      <Unread source={found} />
      {found.loading && <Loading rows={waiting && !running ? 4 : 2} />}
      <ol class="reasons">
        {found.data?.reasons.map((reason) => (
          <li key={reason.code}>
            <Clamped text={readable(reason.text)} />
            {reason.remedy && <p class="remedy">{reason.remedy}</p>}
            <Act reason={reason} task={task} />
          </li>
        ))}
      </ol>
    </Panel>
  );
}

/** What can be done about a reason, here or on another page. */
function Act({ reason, task }: { reason: Explained["reasons"][0]; task: TaskDetail }) {
  const [limits, setLimits] = useState(false);
  const name = (reason.evidence.name as string | null | undefined) ?? null;
  const shown = shownStatus(task);
  switch (reason.code) {
    case "paused":
      return can("operate") ? <Button kind="small" onClick={() => void resume(name)}>Resume {name ?? "everything"}</Button> : null;
    case "retry":
      return can("operate") ? <Button kind="small" onClick={() => act("retry", task, shown)}>Run it now</Button> : null;
    case "behind":
      return can("operate") ? <Button kind="small" onClick={() => act("prioritize", task, shown)}>Raise the priority …</Button> : null;
    case "rate_limit":
    case "concurrency_limit":
    case "key_limit":
      if (!can("operate")) return null;
      return (
        <>
          <Button kind="small" onClick={() => setLimits(true)}>Change the limit …</Button>
          {limits && <LimitDialog type={name} close={() => setLimits(false)} />}
        </>
      );
    case "no_worker":
    case "busy":
    case "worker_silent":
    case "worker_limit":
    case "worker_rate_limit":
    case "running":
      return <a href={href("/workers")}>Workers</a>;
    default:
      return null;
  }
}

const LONG = 300;

/** A text of a few lines; the rest of a longer one is a click away. */
function Clamped({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  if (whole || text.length <= LONG) return <p>{text}</p>;
  return (
    <p>
      {text.slice(0, LONG)}…{" "}
      <Button kind="plain" onClick={() => setWhole(true)}>
        Show all
      </Button>
    </p>
  );
}

export function Facts({ task }: { task: TaskDetail }) {
  const facts: [string, ComponentChildren][] = [
    ["Status", <Badge status={shownStatus(task)} />],
    ["Attempts", `${task.attempts} of ${task.maxAttempts}`],
    ["Created", <Ago at={task.createdAt} />],
  ];
  const add = (name: string, value: ComponentChildren) => value !== null && value !== "" && facts.push([name, value]);
  const time = (name: string, at: string | null) => at && add(name, <Ago at={at} />);
  time("Not before", task.runAfter);
  time("Started", task.lastAttemptAt);
  time("Retry due", task.nextRetryAt);
  time("Ended", task.completedAt);
  if (task.lastAttemptAt) {
    const end = task.completedAt ?? (task.status === "processing" ? now.value : null);
    if (end !== null) add(task.status === "processing" ? "Running for" : "Run time", span(seconds(task.lastAttemptAt, end)));
  }
  time("Asked to stop", task.cancelRequestedAt);
  time("Expires", task.expiresAt);
  if (task.workerId) add("Worker", <WorkerLink id={task.workerId} />);
  if (task.errorGroup) add("Error group", <a href={href(`/errors/${task.errorGroup}`)}>{lastLine(task.error ?? "").split(":")[0]}</a>);
  const schedule = task.headers.schedule;
  if (typeof schedule === "string") add("Schedule", <a href={href("/schedules", { name: schedule })}>{schedule}</a>);
  add("Priority", task.priority);
  if (task.timeoutSeconds) add("Time limit", span(task.timeoutSeconds));
  if (task.uniqueKey) add("Unique key", <code>{task.uniqueKey}</code>);
  if (task.concurrencyKey) add("Concurrency key", <a href={href("/lanes", { by: "key" })}><code>{task.concurrencyKey}</code></a>);
  if (task.lostCount) add("Workers lost", plural(task.lostCount, "worker"));
  add("Version", task.version);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The newest lines are seen, and those that come; whoever has scrolled up stays there. */
export function Log({ task }: { task: TaskDetail }) {
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    if (follows.current) box.current?.scrollTo({ top: box.current.scrollHeight });
  }, [task.log.length]);
  const scrolled = () => {
    const { scrollTop = 0, scrollHeight = 0, clientHeight = 0 } = box.current ?? {};
    follows.current = scrollHeight - scrollTop - clientHeight < 8;
  };
  return (
    <Panel title="Log" aside={<Copy text={task.log.map((line) => line.text).join("\n")} label="Copy the log" />}>
      <div ref={box} onScroll={scrolled} class="log" tabIndex={0} role="log" aria-label="Log of the task">
        {task.log.map((line, at) => (
          <div key={at} class={`log-line ${line.level.toLowerCase()}`}>
            <span class="soft">
              #{line.attempt} {line.elapsed < 0.001 ? "start" : `+${span(line.elapsed)}`}
            </span>
            <span class="log-level">{line.level}</span>
            <span>{line.text}</span>
          </div>
        ))}
      </div>
    </Panel>
  );
}
