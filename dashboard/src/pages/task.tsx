/** One task: what it is, what happened to it, why it is not running, and what can be done. */

import { useEffect, useState } from "preact/hooks";
import { textOf } from "../api/exact";
import { act, ACTIONS, isPossible, VERBS } from "../actions";
import { api, take, type TaskDetail } from "../api/client";
import { shortId } from "../format";
import { go, href } from "../router";
import { type Resource, useResource } from "../resource";
import { can } from "../session";
import { Badge, Button, Copy, Empty, Loading, PageHead, Panel, shownStatus, Trouble } from "../ui/basic";
import { Json } from "../ui/json";
import { Unread } from "../ui/listed";
import { openSubmit } from "../ui/submit";
import { Timeline } from "../ui/timeline";
import { Trace } from "../ui/trace";
import { Attempts, Facts, Log, Progress, Why } from "./task_parts";
import { Workflow } from "./task/workflow";
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
        <Empty title="No task has this id.">
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
      <Panel title="Timeline">
        <Loading rows={2} />
      </Panel>
      <div class="columns">
        <div class="main-column">
          <Panel title="Payload">
            <Loading />
          </Panel>
        </div>
        <div class="side-column">
          <Panel title="Explanation">
            <Loading rows={2} />
          </Panel>
          <Panel title="Details">
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
  const [recorded, setRecorded] = useState(false);
  useEffect(() => {
    document.title = `${task.type} ${shortId(task.id)} · tasklib`;
  }, [task.type, task.id]);
  return (
    <>
      <Head task={task} />
      <Unread source={source} />
      <Progress task={task} />
      <Panel title="Timeline">
        <Timeline task={task} recorded={recorded} />
        <Attempts task={task} />
      </Panel>
      <Workflow task={task} found={setRecorded} />
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
          {task.unreadable && (
            <Panel title="Unreadable" class="failure">
              <p>{task.unreadable}</p>
            </Panel>
          )}
          <JsonPanel title="Payload" value={task.payload} root="args" />
          {(task.status === "completed" || task.result !== null) && <JsonPanel title="Result" value={task.result ?? null} />}
          {task.log.length > 0 && <Log task={task} />}
          {Object.keys(task.headers).length > 0 && <JsonPanel title="Headers" value={task.headers} />}
        </div>
        <div class="side-column">
          <Why task={task} />
          <Panel title="Details" class="facts-panel">
            <Facts task={task} />
          </Panel>
          {Object.keys(task.tags).length > 0 && (
            <Panel title="Tags" aside={<Copy text={JSON.stringify(task.tags, null, 2)} label="Copy the tags" />}>
              <p class="tag-list">
                {Object.entries(task.tags).map(([key, value]) => (
                  <a key={key} class="tag" href={href("/tasks", { tag: `${key}=${textOf(value)}` })}>
                    {key}={textOf(value)}
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

function JsonPanel({ title, value, root }: { title: string; value: unknown; root?: string }) {
  const label = title.toLowerCase();
  return (
    <Panel title={title} aside={<Copy text={JSON.stringify(value, null, 2)} label={`Copy the ${label}`} />}>
      <Json value={value} label={label} root={root} />
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
        {can("operate") && <Button onClick={() => openSubmit(task)}>Duplicate &amp; edit …</Button>}
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
