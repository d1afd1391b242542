/** The overview: how the queue is doing now and was doing before, at a glance. */

import { cleanUp } from "../actions";
import { api, type Stats, take, type Task, type TypeInfo } from "../api/client";
import { getSeries, type Series } from "../api/metrics";
import { now } from "../clock";
import { change, count, lastLine, percent, plural, seconds, short, shortId, span } from "../format";
import { snapshot, stats } from "../live";
import { href } from "../router";
import { type Resource, useResource } from "../resource";
import { samples } from "../samples";
import { can } from "../session";
import { Ago, Badge, Button, Choice, Empty, Fact, LABELS, Loading, PageHead, Panel, shownStatus, type Shown } from "../ui/basic";
import { Controls } from "../ui/controls";
import { Listed } from "../ui/listed";
import { Charts, ended as sumOf, READING } from "./charts";
import { Now } from "./now";
import "../styles/overview.css";

export function OverviewPage() {
  const hour = useResource("last hour", (signal) => getSeries(3600, "", signal), { every: READING });
  return (
    <>
      <PageHead title="Overview">
        <Controls />
      </PageHead>
      <Now />
      <Cards stats={stats.value} />
      <Age stats={stats.value} />
      <Facts hour={hour} />
      <Charts />
      <div class="halves">
        <div>
          <ByType stats={stats.value} />
          {can("operate") && <CleanUp />}
        </div>
        <LastFailures />
      </div>
    </>
  );
}

const CARDS: Shown[] = ["pending", "processing", "completed", "failed", "cancelled", "buried"];

function Cards({ stats }: { stats: Stats | null }) {
  const beside: Partial<Record<Shown, string | false>> = stats
    ? {
        pending: [stats.delayed && `${short(stats.delayed)} delayed`, stats.waiting && `${short(stats.waiting)} waiting`].filter(Boolean).join(", "),
        failed: stats.retrying > 0 && `${short(stats.retrying)} retrying`,
      }
    : {};
  return (
    <div class="cards" aria-busy={!stats}>
      {CARDS.map((status) => (
        <a key={status} class={`card ${status}`} href={href("/tasks", { status })}>
          <span class="card-name">{LABELS[status]}</span>
          <span class="card-number">{stats ? short(stats[status as keyof Stats] as number) : "–"}</span>
          <span class="card-beside">{beside[status] || " "}</span>
        </a>
      ))}
    </div>
  );
}

/** Numbers that are not those of this moment say so. */
function Age({ stats }: { stats: Stats | null }) {
  if (!stats || stats.maxAgeSeconds <= 1) return null;
  return <p class="hint cards-age">Counts up to {stats.maxAgeSeconds} s old.</p>;
}

function Facts({ hour }: { hour: Resource<Series> }) {
  const last = outcomeOf(hour.data);
  // The same hour of yesterday: what is usual at this time of the day.
  const yesterday = outcomeOf(useResource("hour of yesterday", (signal) => getSeries(3600, "", signal, new Date(Date.now() - 86_400_000)), { every: 60_000 }).data);
  const recent = samples.value.slice(-60);
  const rate = recent.length > 1 ? recent.reduce((sum, each) => sum + each.completed + each.failed, 0) / recent.length : null;
  const backlog = useBacklog();
  const oldest = useResource("oldest", (signal) => take(api.GET("/api/metrics/oldest", { signal })), { every: 5000 }).data;
  return (
    <dl class="strip">
      <Fact name="Tasks in the last hour">
        {last ? count(last.ended) : "–"} <Since text={last && yesterday?.ended ? change(last.ended, yesterday.ended) : ""} />
      </Fact>
      <Fact name="Failure rate">
        {percent(last?.rate ?? null)} <Since text={yesterday?.ended ? `was ${percent(yesterday.rate)}` : ""} />
      </Fact>
      <Fact name="Finishing">{rate === null ? "–" : `${rate.toFixed(1)}/s`}</Fact>
      <Fact name="Time to clear backlog">{backlog?.able ? (rate ? span(backlog.able / rate) : "–") : backlog?.unable === 0 ? "nothing waits" : "–"}</Fact>
      <Fact name="Cannot run now" to={backlog?.unable ? "/types" : undefined}>
        {backlog === null ? "–" : backlog.unable ? plural(backlog.unable, "task") : "none"}
      </Fact>
      <Fact name="Oldest waiting" to={oldest?.id ? `/tasks/${oldest.id}` : undefined}>
        {oldest?.dueAt ? span(Math.max(seconds(oldest.dueAt, now.value), 0)) : oldest ? "nothing waits" : "–"}
      </Fact>
      <Fact name="Workers alive" to="/workers">
        {snapshot.value ? String(snapshot.value.workersAlive) : "–"}
      </Fact>
    </dl>
  );
}

/** How many tasks finished in a time, and which part of them failed, in percent. */
function outcomeOf(series: Series | null): { ended: number; rate: number | null } | null {
  if (!series) return null;
  const failed = sumOf(series, "failed", "buried");
  const ended = failed + sumOf(series, "completed");
  return { ended, rate: ended ? (failed / ended) * 100 : null };
}

function Since({ text }: { text: string }) {
  return text ? (
    <span class="hint" title="Compared with the same hour of yesterday">
      {text}
    </span>
  ) : null;
}

/** How many wait for a worker, and how many wait in vain: their type is paused, or nobody handles it. Null until it is known. */
function useBacklog(): { able: number; unable: number } | null {
  const types = useResource("types", (signal) => take(api.GET("/api/types", { signal })), { every: 5000 }).data?.types;
  if (!types) return null;
  const sum = (some: TypeInfo[]) => some.reduce((total, each) => total + each.pending - each.delayed - each.waiting + each.retrying, 0);
  const runs = (each: TypeInfo) => each.workers > 0 && !each.paused;
  return { able: sum(types.filter(runs)), unable: sum(types.filter((each) => !runs(each))) };
}

const PARTS: (keyof Stats & string)[] = ["pending", "processing", "completed", "failed", "cancelled", "buried"];

function ByType({ stats }: { stats: Stats | null }) {
  const types = Object.entries(stats?.byType ?? {})
    .map(([name, counts]) => ({ name, counts: counts as Record<string, number>, sum: PARTS.reduce((n, part) => n + (counts[part] ?? 0), 0) }))
    .sort((a, b) => b.sum - a.sum)
    .slice(0, 12);
  const most = Math.max(...types.map((each) => each.sum), 1);
  return (
    <Panel title="By type" aside={<a href={href("/types")}>All types</a>}>
      {!stats ? (
        <Loading />
      ) : types.length ? (
        <ul class="by-type">
          {types.map(({ name, counts, sum }) => (
            <li key={name}>
              <a href={href("/tasks", { type: name })}>{name}</a>
              <svg role="img" width="100%" height="12" aria-label={PARTS.map((part) => `${part} ${counts[part] ?? 0}`).join(", ")}>
                <Stack counts={counts} most={most} />
              </svg>
              <span class="number">{short(sum)}</span>
            </li>
          ))}
          <li class="by-type-keys">
            {PARTS.filter((part) => types.some(({ counts }) => counts[part])).map((part) => (
              <span key={part} class="key">
                <i class={`dot s-${part}`} />
                {LABELS[part as Shown].toLowerCase()}
              </span>
            ))}
          </li>
        </ul>
      ) : (
        <Empty title="No tasks yet." />
      )}
    </Panel>
  );
}

function Stack({ counts, most }: { counts: Record<string, number>; most: number }) {
  let x = 0;
  return (
    <>
      {PARTS.map((part) => {
        const width = ((counts[part] ?? 0) / most) * 100;
        x += width;
        return width > 0 && <rect key={part} class={`s-${part}`} x={`${x - width}%`} width={`${width}%`} height="12" />;
      })}
    </>
  );
}

function LastFailures() {
  const failures = useResource(
    "last failures",
    (signal) => take(api.GET("/api/tasks", { params: { query: { status: ["failed", "buried"], limit: 10, total: false } }, signal })),
    { live: true },
  );
  const tasks = failures.data?.tasks ?? [];
  return (
    <Panel title="Last failures" aside={<a href={href("/errors")}>All errors</a>}>
      <Listed source={failures} some={tasks.length > 0} empty={<Empty title="No failures. Good." />}>
        <ul class="failures">
          {tasks.map((task) => (
            <Failure key={task.id} task={task} />
          ))}
        </ul>
      </Listed>
    </Panel>
  );
}

function Failure({ task }: { task: Task }) {
  return (
    <li data-row>
      <div class="failure-head">
        <a class="row-link" href={href(`/tasks/${task.id}`)}>
          {task.type} <code class="id">{shortId(task.id)}</code>
        </a>
        <Badge status={shownStatus(task)} />
        <span class="soft">
          attempt {task.attempts} of {task.maxAttempts} · <Ago at={task.completedAt ?? task.updatedAt} />
        </span>
      </div>
      <div class="preview bad">{lastLine(task.error ?? "")}</div>
    </li>
  );
}

const AGES: Record<string, [string, number]> = {
  hour: ["an hour", 1],
  day: ["a day", 24],
  week: ["7 days", 168],
  month: ["30 days", 720],
};

function CleanUp() {
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const hours = AGES[form.get("age") as string]?.[1] ?? 168;
    const statuses = form.getAll("status") as ("completed" | "failed" | "cancelled" | "buried")[];
    if (statuses.length) cleanUp(new Date(now.peek() - hours * 3_600_000), statuses);
  };
  return (
    <Panel title="Clean up">
      <form class="clean-up" onSubmit={send}>
        <label>
          Remove what ended more than{" "}
          <Choice name="age" label="Age" chosen="week" options={Object.entries(AGES).map(([key, [name]]) => [key, name])} />{" "}
          ago:
        </label>
        {(["completed", "failed", "cancelled", "buried"] as const).map((status) => (
          <label key={status} class="choice">
            <input type="checkbox" name="status" value={status} defaultChecked={status === "completed"} />
            {LABELS[status]}
          </label>
        ))}
        <Button type="submit" kind="danger">
          Clean up …
        </Button>
      </form>
    </Panel>
  );
}
