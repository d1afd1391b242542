/** Tasks in rows: what each is, how it stands, and what can be done to it. */

import { useState } from "preact/hooks";
import { textOf } from "../api/exact";
import { act, ACTIONS, isPossible, VERBS } from "../actions";
import type { Action, Task } from "../api/client";
import { now } from "../clock";
import { jsonPreview, lastLine, seconds, shortId, span } from "../format";
import { href } from "../router";
import { can } from "../session";
import { Ago, Badge, Bar, Button, type Shown, shownStatus } from "../ui/basic";
import { ActionsHead } from "../ui/table";

/** A task in a list that stands still: it may have been deleted meanwhile. */
export type Listed = Task & { deleted?: boolean };

interface TableProps {
  tasks: Listed[];
  selected: ReadonlySet<string>;
  select: (ids: ReadonlySet<string>) => void;
}

export function TaskTable({ tasks, selected, select }: TableProps) {
  const operates = can("operate");
  const toggle = (id: string) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    select(next);
  };
  const all = tasks.every((task) => selected.has(task.id));
  return (
    <table class="rows tasks">
      <thead>
        <tr>
          {operates && (
            <th class="tick">
              <input
                type="checkbox"
                aria-label="Select all on this page"
                checked={all}
                onChange={() => select(new Set(all ? [] : tasks.map((task) => task.id)))}
              />
            </th>
          )}
          <th>Task</th>
          <th>Status</th>
          <th class="number">Attempts</th>
          <th class="number">Took</th>
          <th>Created</th>
          {operates && <ActionsHead />}
        </tr>
      </thead>
      <tbody>
        {tasks.map((task) => (
          <Row key={task.id} task={task} selected={selected.has(task.id)} toggle={toggle} operates={operates} />
        ))}
      </tbody>
    </table>
  );
}

interface RowProps {
  task: Listed;
  selected: boolean;
  toggle: (id: string) => void;
  operates: boolean;
}

function Row({ task, selected, toggle, operates }: RowProps) {
  const shown = shownStatus(task);
  const [offered, hold] = useOffered(shown);
  if (task.deleted) return <Deleted task={task} columns={operates ? 7 : 5} />;
  return (
    <tr data-row class={selected ? "selected" : undefined} {...hold}>
      {operates && (
        <td class="tick">
          <input
            type="checkbox"
            checked={selected}
            onChange={() => toggle(task.id)}
            aria-label={`Select ${task.type} ${shortId(task.id)}`}
          />
        </td>
      )}
      <td class="what">
        <a class="row-link" href={href(`/tasks/${task.id}`)}>
          {task.type}
        </a>
        <code class="id" title={task.id}>
          {shortId(task.id)}
        </code>
        {task.priority !== 0 && <span class="tag" title="Priority">P{task.priority}</span>}
        {Object.entries(task.tags).slice(0, 3).map(([key, value]) => (
          <a key={key} class="tag" href={href("/tasks", { tag: `${key}=${textOf(value)}` })}>
            {key}={textOf(value)}
          </a>
        ))}
        {task.unreadable && <span class="badge failed" title={task.unreadable}>Unreadable</span>}
        <div class={task.error && shown !== "completed" ? "preview bad" : "preview"}>
          {task.error && shown !== "completed" ? lastLine(task.error) : jsonPreview(task.payload)}
        </div>
      </td>
      <td class="status">
        <Badge status={shown} />
        <When task={task} />
      </td>
      <td class="number attempts" data-label="attempts">
        {task.attempts}/{task.maxAttempts}
      </td>
      <td class="number took" data-label="took">{took(task)}</td>
      <td class="created">
        <Ago at={task.createdAt} />
      </td>
      {operates && (
        <td class="doing">
          {ACTIONS.filter((action) => isOffered(action, offered)).map((action) => (
            <Button
              key={action}
              kind={action === "delete" ? "small danger" : "small"}
              label={`${VERBS[action]} ${task.type} ${shortId(task.id)}`}
              off={!isOffered(action, shown)}
              onClick={() => act(action, task, shown)}
            >
              {VERBS[action]}
            </Button>
          ))}
        </td>
      )}
    </tr>
  );
}

const isOffered = (action: Action, shown: Shown) => isPossible(action, shown) && !(action === "retry" && shown === "completed");

/** The status whose actions a row offers: the one it had when the pointer came, so that no button turns into another. */
function useOffered(shown: Shown) {
  const [held, setHeld] = useState<Shown | null>(null);
  const hold = {
    onPointerEnter: (event: PointerEvent) => event.pointerType === "mouse" && setHeld(shown),
    onPointerLeave: () => setHeld(null),
  };
  return [held ?? shown, hold] as const;
}

function Deleted({ task, columns }: { task: Task; columns: number }) {
  return (
    <tr class="deleted">
      <td colSpan={columns} class="soft">
        {task.type} <code class="id">{shortId(task.id)}</code> was deleted.
      </td>
    </tr>
  );
}

/** What is worth knowing beside the status: when it goes on, or how far it is. */
function When({ task }: { task: Task }) {
  const shown = shownStatus(task);
  if (shown === "delayed") return <span class="hint"><Ago at={task.runAfter} /></span>;
  if (shown === "retrying") return <span class="hint"><Ago at={task.nextRetryAt} /></span>;
  if (shown === "processing" && task.cancelRequestedAt) return <span class="hint">stopping</span>;
  if (shown === "processing" && task.progress !== null) {
    return <Bar part={task.progress} label={`Progress of ${task.type} ${shortId(task.id)}`} />;
  }
  return null;
}

function took(task: Task): string {
  if (!task.lastAttemptAt) return "";
  if (task.status === "processing") return span(seconds(task.lastAttemptAt, now.value));
  return task.completedAt && task.status !== "cancelled" ? span(seconds(task.lastAttemptAt, task.completedAt)) : "";
}
