/** One task: what it is, what happened to it, why it is not running, and what can be done. */

import type { ComponentChildren } from "preact";
import { act, ACTIONS, isPossible, VERBS } from "../actions";
import { api, take, type TaskDetail } from "../api/client";
import { plural, readable, seconds, span } from "../format";
import { go, href } from "../router";
import { type Resource, useResource } from "../resource";
import { can } from "../session";
import { Ago, Badge, Bar, Button, Copy, Empty, Loading, PageHead, Panel, shownStatus, Trouble } from "../ui/basic";
import { Json } from "../ui/json";
import { Unread } from "../ui/listed";
import { openSubmit } from "../ui/submit";
import { Timeline } from "../ui/timeline";
import { Trace } from "../ui/trace";
import { now } from "../clock";
import "../styles/task.css";

const WATCHING = 800;

export function TaskPage({ id }: { id: string }) {
  const task = useResource(
    `task ${id}`,
    (signal) => take(api.GET("/api/tasks/{task_id}", { params: { path: { task_id: id } }, signal })),
    { live: true, every: WATCHING },
  );
  if (task.problem?.status === 404) {
    return (
      <>
        <PageHead title="Task" />
        <Empty title="There is no task of this id.">
          <p>It may have been deleted, or cleaned up.</p>
          <a class="button" href={href("/tasks")}>
            All tasks
          </a>
        </Empty>
      </>
    );
  }
  if (task.data) return <Shown task={task.data} source={task} />;
  return (
    <>
      <div class="page-head">
        <div>
          <Crumbs />
          <h1>Task</h1>
          <p class="id-line">
            <code>{id}</code>
          </p>
        </div>
      </div>
      {task.problem ? <Trouble problem={task.problem} retry={task.refresh} /> : <Awaited />}
    </>
  );
}

/** The places of what is on its way. */
function Awaited() {
  return (
    <>
      <Panel title="What happened">
        <Loading rows={2} />
      </Panel>
      <div class="columns">
        <div class="main-column">
          <Panel title="Payload">
            <Loading />
          </Panel>
        </div>
        <div class="side-column">
          <Panel title="How it stands">
            <Loading rows={2} />
          </Panel>
          <Panel title="Facts">
            <Loading />
          </Panel>
        </div>
      </div>
    </>
  );
}

function Crumbs({ type }: { type?: string }) {
  return (
    <p class="crumbs">
      <a href={href("/tasks")}>Tasks</a>
      {type && (
        <>
          {" "}
          / <a href={href("/tasks", { type })}>{type}</a>
        </>
      )}
    </p>
  );
}

function Shown({ task, source }: { task: TaskDetail; source: Resource<TaskDetail> }) {
  return (
    <>
      <Head task={task} />
      <Unread source={source} />
      <Progress task={task} />
      <Panel title="What happened">
        <Timeline task={task} />
        <Attempts task={task} />
      </Panel>
      <div class="columns">
        <div class="main-column">
          {task.error && (
            <Panel
              title={task.status === "completed" ? "Last error before it completed" : "Error"}
              aside={<Copy text={task.error} label="Copy the error" />}
              class="failure"
            >
              <Trace error={task.error} />
            </Panel>
          )}
          <JsonPanel title="Payload" value={task.payload} />
          {(task.status === "completed" || task.result !== null) && <JsonPanel title="Result" value={task.result ?? null} />}
          {task.log.length > 0 && <Log task={task} />}
          {Object.keys(task.headers).length > 0 && <JsonPanel title="Headers" value={task.headers} />}
        </div>
        <div class="side-column">
          <Why task={task} />
          <Panel title="Facts" class="facts-panel">
            <Facts task={task} />
          </Panel>
          {Object.keys(task.tags).length > 0 && (
            <Panel title="Tags" aside={<Copy text={JSON.stringify(task.tags, null, 2)} label="Copy the tags" />}>
              <p class="tag-list">
                {Object.entries(task.tags).map(([key, value]) => (
                  <a key={key} class="tag" href={href("/tasks", { tag: `${key}=${value}` })}>
                    {key}={typeof value === "string" ? value : JSON.stringify(value)}
                  </a>
                ))}
              </p>
            </Panel>
          )}
        </div>
      </div>
    </>
  );
}

function JsonPanel({ title, value }: { title: string; value: unknown }) {
  const label = title.toLowerCase();
  return (
    <Panel title={title} aside={<Copy text={JSON.stringify(value, null, 2)} label={`Copy the ${label}`} />}>
      <Json value={value} label={label} />
    </Panel>
  );
}

function Head({ task }: { task: TaskDetail }) {
  const shown = shownStatus(task);
  return (
    <div class="page-head">
      <div>
        <Crumbs type={task.type} />
        <h1>
          {task.type} <Badge status={shown} />
        </h1>
        <p class="id-line">
          <code>{task.id}</code> <Copy text={task.id} label="Copy the id" />
        </p>
      </div>
      <div class="page-actions">
        {can("operate") && <Button onClick={() => openSubmit(task)}>Submit again …</Button>}
        {can("operate") &&
          ACTIONS.filter((action) => isPossible(action, shown)).map((action) => (
            <Button
              key={action}
              kind={action === "delete" ? "danger" : action === "retry" && shown !== "completed" ? "primary" : undefined!}
              disabled={action === "cancel" && task.cancelRequestedAt !== null && shown === "processing"}
              onClick={() => act(action, task, shown, action === "delete" ? () => go(href("/tasks")) : undefined)}
            >
              {action === "retry" && shown === "completed" ? "Run again" : VERBS[action]}
            </Button>
          ))}
      </div>
    </div>
  );
}

function Progress({ task }: { task: TaskDetail }) {
  if (task.status !== "processing" || (task.progress === null && !task.progressMessage)) return null;
  return (
    <div class="progress-line" role="status">
      <Bar part={task.progress ?? 0} label="Progress" />
      <span>
        {Math.round((task.progress ?? 0) * 100)} % {task.progressMessage}
      </span>
    </div>
  );
}

function Attempts({ task }: { task: TaskDetail }) {
  if (!task.history.length) return null;
  return (
    <table class="rows attempts-table">
      <thead>
        <tr>
          <th>Attempt</th>
          <th>Outcome</th>
          <th>Started</th>
          <th class="number">Ran</th>
          <th>Worker</th>
        </tr>
      </thead>
      <tbody>
        {[...task.history].reverse().map((attempt, at) => (
          <tr key={at}>
            <td class="which">{attempt.number}</td>
            <td>
              <span class={`outcome ${attempt.outcome === "completed" ? "good" : "bad"}`}>{attempt.outcome}</span>{" "}
              {attempt.error && <span class="preview">{attempt.error}</span>}
            </td>
            <td>
              <Ago at={attempt.startedAt} />
            </td>
            <td class="number">
              {attempt.startedAt && attempt.endedAt ? span(seconds(attempt.startedAt, attempt.endedAt)) : "–"}
            </td>
            <td>
              <code>{attempt.workerId ?? "–"}</code>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Why({ task }: { task: TaskDetail }) {
  const waiting = task.completedAt === null;
  const found = useResource(
    `why ${task.id} ${task.status} ${task.version} ${task.updatedAt}`,
    (signal) => take(api.GET("/api/tasks/{task_id}/explain", { params: { path: { task_id: task.id } }, signal })),
    { every: waiting ? 2000 : undefined },
  );
  const running = task.status === "processing";
  return (
    <Panel title={waiting && !running ? "Why isn’t it running?" : "How it stands"} class="why">
      <Unread source={found} />
      {found.loading && <Loading rows={2} />}
      <ol class="reasons">
        {found.data?.reasons.map((reason) => (
          <li key={reason.code}>
            <p>{readable(reason.text)}</p>
            {reason.remedy && <p class="remedy">{reason.remedy}</p>}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Facts({ task }: { task: TaskDetail }) {
  const facts: [string, ComponentChildren][] = [
    ["Status", <Badge status={shownStatus(task)} />],
    ["Attempts", `${task.attempts} of ${task.maxAttempts}`],
    ["Created", <Ago at={task.createdAt} />],
  ];
  const add = (name: string, value: ComponentChildren) => value !== null && value !== "" && facts.push([name, value]);
  const time = (name: string, at: string | null) => at && add(name, <Ago at={at} />);
  time("Not before", task.runAfter);
  time("Started", task.lastAttemptAt);
  time("Retry", task.nextRetryAt);
  time("Ended", task.completedAt);
  if (task.lastAttemptAt) {
    const end = task.completedAt ?? (task.status === "processing" ? now.value : null);
    if (end !== null) add(task.status === "processing" ? "Running for" : "Ran", span(seconds(task.lastAttemptAt, end)));
  }
  time("Asked to stop", task.cancelRequestedAt);
  time("Expires", task.expiresAt);
  if (task.workerId) add("Worker", <code>{task.workerId}</code>);
  add("Priority", task.priority);
  if (task.timeoutSeconds) add("Time limit", span(task.timeoutSeconds));
  if (task.uniqueKey) add("Unique key", <code>{task.uniqueKey}</code>);
  if (task.concurrencyKey) add("Concurrency key", <code>{task.concurrencyKey}</code>);
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

function Log({ task }: { task: TaskDetail }) {
  return (
    <Panel title="Log" aside={<Copy text={task.log.map((line) => line.text).join("\n")} label="Copy the log" />}>
      <div class="log" tabIndex={0} role="log" aria-label="Log of the task">
        {task.log.map((line, at) => (
          <div key={at} class={`log-line ${line.level.toLowerCase()}`}>
            <span class="soft">
              #{line.attempt} +{span(line.elapsed)}
            </span>
            <span class="log-level">{line.level}</span>
            <span>{line.text}</span>
          </div>
        ))}
      </div>
    </Panel>
  );
}
