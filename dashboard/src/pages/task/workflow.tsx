/** A workflow on the page of its task: its attempts, steps and waits over time, and what is around it. */

import { useEffect, useState } from "preact/hooks";
import { api, take, type TaskDetail } from "../../api/client";
import type { components } from "../../api/schema";
import { now } from "../../clock";
import { absolute, count, plural, shortId, span } from "../../format";
import { href } from "../../router";
import { useResource } from "../../resource";
import { Badge, Bar, Button, Panel, type Shown } from "../../ui/basic";
import { Question } from "../../ui/question";
import "../../styles/questions.css";
import "../../styles/workflow.css";

type Step = components["schemas"]["Step"];
type Tree = components["schemas"]["Tree"];
type Group = Tree["groups"][0];
type Related = Tree["before"][0];

/** Milliseconds; while it lives, steps come and go without a change of the task itself. */
const WATCHING = 2000;

/** `found` hears whether it has recorded steps. */
export function Workflow({ task, found }: { task: TaskDetail; found: (recorded: boolean) => void }) {
  const key = `${task.id} ${task.status} ${task.version} ${task.updatedAt}`;
  const alive = { every: task.completedAt ? undefined : WATCHING };
  const params = { path: { task_id: task.id } };
  const steps = useResource(`steps ${key}`, (signal) => take(api.GET("/api/tasks/{task_id}/steps", { params, signal })), alive);
  const tree = useResource(`tree ${key}`, (signal) => take(api.GET("/api/tasks/{task_id}/tree", { params, signal })), alive);
  const all = steps.data?.steps ?? [];
  useEffect(() => found(all.length > 0), [all.length > 0]);
  const around = tree.data && (tree.data.parent || tree.data.before.length > 0 || tree.data.groups.length > 0);
  if (!all.length && !around) return null;
  return (
    <>
      {all.some((step) => step.kind === "ask" && step.state === "open") && <Questions task={task} />}
      <div class={around ? "workflow with-graph" : "workflow"}>
        {all.length > 0 && (
          <Panel title="Steps" aside={`${count(all.filter((step) => step.state === "done").length)} of ${plural(all.length, "step")} done`}>
            <Waterfall task={task} steps={all} groups={tree.data?.groups ?? []} />
          </Panel>
        )}
        {around && (
          <Panel title="Graph">
            <Graph tree={tree.data!} task={task} />
          </Panel>
        )}
      </div>
    </>
  );
}

function Questions({ task }: { task: TaskDetail }) {
  const found = useResource(
    `questions of ${task.id}`,
    (signal) => take(api.GET("/api/questions", { params: { query: { limit: 1000 } }, signal })),
    { every: 5000 },
  );
  const mine = found.data?.questions.filter((each) => each.taskId === task.id) ?? [];
  if (!mine.length) return null;
  return (
    <Panel title="It asks" class="why">
      {mine.map((asked) => (
        <Question key={asked.key} asked={asked} named={false} done={found.refresh} />
      ))}
    </Panel>
  );
}

interface Row {
  name: string;
  kind: string;
  bars: { from: number; to: number; state: string; title: string }[];
  beside: string;
}

const KINDS: Record<string, string> = {
  attempt: "attempts",
  step: "step",
  sleep: "sleep",
  wait: "wait",
  ask: "question",
  run: "child",
  map: "children",
  spend: "budget",
};
const kindOf = (row: Row): string => KINDS[row.kind] ?? row.kind;

/** Steps of one name that are shown each in a row of its own; more share one. */
const FEW = 12;
const MOST = 150;

/** `fetch#2` and `fetch:42` are both `fetch`. */
const nameOf = (step: Step): string => step.key.replace(/(#\d+|:.*)$/s, "");

function rowsOf(task: TaskDetail, steps: Step[], groups: Group[], clock: number): Row[] {
  const attempts = task.history
    .filter((each) => each.startedAt && each.endedAt)
    .map((each) => ({ from: Date.parse(each.startedAt!), to: Date.parse(each.endedAt!), state: each.outcome === "completed" ? "done" : "failed", title: `attempt ${each.outcome}` }));
  if (task.status === "processing" && task.lastAttemptAt) attempts.push({ from: Date.parse(task.lastAttemptAt), to: clock, state: "open", title: "runs now" });
  const rows: Row[] = attempts.length ? [{ name: "Attempts", kind: "attempt", bars: attempts, beside: plural(attempts.length, "attempt") }] : [];
  const byName = new Map<string, Step[]>();
  for (const step of [...steps].sort((a, b) => a.number - b.number)) {
    byName.set(nameOf(step), [...(byName.get(nameOf(step)) ?? []), step]);
  }
  for (const [name, some] of byName) {
    if (some.length > FEW) rows.push({ name: `${name} × ${count(some.length)}`, kind: some[0]!.kind, bars: some.map((step) => barOf(step, clock)), beside: `${count(some.filter((each) => each.state === "done").length)} done` });
    else for (const step of some) rows.push({ name: step.key, kind: step.kind, bars: [barOf(step, clock)], beside: besideOf(step, groups, clock) });
  }
  return rows.slice(0, MOST);
}

/** A sleep that is over ended when it was to end: nobody was there to write it down. */
const endOf = (step: Step): string | null => (step.state === "done" ? step.until : null);

function barOf(step: Step, clock: number) {
  const from = Date.parse(step.startedAt ?? step.endedAt ?? "") || clock;
  const to = Math.min(Date.parse(step.endedAt ?? endOf(step) ?? "") || clock, clock);
  return { from, to: Math.max(from, to), state: step.state, title: `${step.key}: ${step.state}, ${span((to - from) / 1000)}` };
}

function besideOf(step: Step, groups: Group[], clock: number): string {
  const { from, to } = barOf(step, clock);
  const group = groups.find((each) => each.key === step.key);
  const parts = [span((to - from) / 1000)];
  if (group) parts.push(`${count(group.ended)} of ${count(group.total)} ended`);
  if (step.tries) parts.push(`${plural(step.tries, "failure")}`);
  if (step.state === "open" && step.until) parts.push(`until ${absolute(step.until)}`);
  if (step.undo) parts.push(`undone by ${step.undo} if it fails`);
  if (step.note) parts.push(step.note);
  return parts.join(" · ");
}

function Waterfall({ task, steps, groups }: { task: TaskDetail; steps: Step[]; groups: Group[] }) {
  const clock = task.completedAt ? Date.parse(task.completedAt) : now.value;
  const rows = rowsOf(task, steps, groups, clock);
  const since = Math.min(...rows.flatMap((row) => row.bars.map((bar) => bar.from)), Date.parse(task.createdAt));
  const until = Math.max(...rows.flatMap((row) => row.bars.map((bar) => bar.to)), since + 1);
  const x = (at: number) => ((at - since) / (until - since)) * 100;
  return (
    <ol class="waterfall">
      {rows.map((row) => (
        <li key={row.name}>
          <span class="fall-name" title={row.name}>
            {row.name} {row.name.toLowerCase() !== kindOf(row) && <span class="hint">{kindOf(row)}</span>}
          </span>
          <svg role="img" aria-label={`${row.name}: ${row.beside}`} width="100%" height="14">
            {row.bars.map((bar, at) => (
              <rect key={at} class={`fall ${row.kind} ${bar.state}`} x={`${Math.min(x(bar.from), 99.4)}%`} width={`${Math.max(x(bar.to) - x(bar.from), 0.6)}%`} y="2" height="10" rx="2">
                <title>{`${bar.title}, from ${absolute(bar.from)}`}</title>
              </rect>
            ))}
          </svg>
          <span class="fall-beside">{row.beside}</span>
        </li>
      ))}
      <li class="hint fall-all">
        {span((until - since) / 1000)} in all, from {absolute(since)}
        {steps.length > MOST && ` · ${count(steps.length - MOST)} steps not shown`}
      </li>
    </ol>
  );
}

/** What is before it, the task, and its children: a group of many is one node with counts. */
function Graph({ tree, task }: { tree: Tree; task: TaskDetail }) {
  return (
    <div class="graph">
      {tree.parent && (
        <ol class="graph-column" aria-label="Whose child it is">
          <Node related={tree.parent} beside="its parent" />
        </ol>
      )}
      {tree.before.length > 0 && (
        <ol class="graph-column" aria-label="Before it">
          {tree.before.map((each) => (
            <Node key={each.id} related={each} beside={each.param ? `→ ${each.param}` : ""} />
          ))}
        </ol>
      )}
      <ol class="graph-column" aria-label="This task">
        <li class="node here">
          <strong>{task.type}</strong>
          {task.waitsFor && <span class="hint">waits for {task.waitsFor}</span>}
        </li>
      </ol>
      {tree.groups.length > 0 && (
        <ol class="graph-column" aria-label="Its children">
          {tree.groups.map((group) => (group.total === 1 && group.children[0] ? <Node key={group.key} related={group.children[0]} beside={group.key} /> : <Folded key={group.key} group={group} />))}
        </ol>
      )}
    </div>
  );
}

function Node({ related, beside }: { related: Related; beside: string }) {
  return (
    <li class="node">
      <a href={href(`/tasks/${related.id}`)}>
        {related.type} <code class="id">{shortId(related.id)}</code>
      </a>
      <Badge status={statusOf(related.status)} />
      {beside && <span class="hint">{beside}</span>}
    </li>
  );
}

const statusOf = (state: string): Shown => (state === "running" ? "processing" : (state as Shown));

/** Children of one call, as numbers; the first hundred are a click away. */
function Folded({ group }: { group: Group }) {
  const [open, setOpen] = useState(false);
  const completed = group.ended - group.failed - group.cancelled;
  const parts = [`${count(completed)} completed`];
  if (group.failed) parts.push(`${count(group.failed)} failed`);
  if (group.cancelled) parts.push(`${count(group.cancelled)} cancelled`);
  if (group.total > group.ended) parts.push(`${count(group.total - group.ended)} open`);
  return (
    <li class="node">
      <strong>
        {group.key} × {count(group.total)}
        {group.sealed ? "" : " so far"}
      </strong>
      <Bar part={group.total ? group.ended / group.total : 0} label={`${group.key}: ${count(group.ended)} of ${count(group.total)} ended`} />
      <span class="hint">{parts.join(", ")}</span>
      <Button kind="plain" onClick={() => setOpen(!open)}>
        {open ? "Fold" : `Show ${group.total > group.children.length ? `the first ${count(group.children.length)}` : "them"}`}
      </Button>
      {open && (
        <ol class="graph-children">
          {group.children.map((child) => (
            <Node key={child.id} related={child} beside="" />
          ))}
        </ol>
      )}
    </li>
  );
}
