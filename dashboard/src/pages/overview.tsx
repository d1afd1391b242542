/** The overview: how the queue is doing now and was doing before, at a glance. */

import { useMemo } from "preact/hooks";
import { cleanUp } from "../actions";
import { api, type Stats, take, type Task } from "../api/client";
import { getSeries, type Series } from "../api/metrics";
import { now } from "../clock";
import { count, lastLine, seconds, short, shortId, span } from "../format";
import { snapshot, stats } from "../live";
import { href, query, setQuery } from "../router";
import { type Resource, useResource } from "../resource";
import { samples } from "../samples";
import { can } from "../session";
import { Ago, Badge, Button, Choice, Empty, LABELS, Loading, PageHead, Panel, shownStatus, type Shown, Trouble } from "../ui/basic";
import { Chart, type Line } from "../ui/chart";
import { Controls } from "../ui/controls";

const RANGES: Record<string, [string, number]> = {
  live: ["Live", 0],
  "1h": ["1 h", 3600],
  "6h": ["6 h", 21_600],
  "24h": ["24 h", 86_400],
  "7d": ["7 d", 604_800],
  "30d": ["30 d", 2_592_000],
};
const READING = 15_000;
const n = (value: number | undefined) => value ?? 0;

export function OverviewPage() {
  const range = RANGES[query.value.get("range") ?? ""] ? query.value.get("range")! : "live";
  const type = query.value.get("type") ?? "";
  const hour = useResource("last hour", (signal) => getSeries(3600, "", signal), { every: READING });
  return (
    <>
      <PageHead title="Overview">
        <Controls />
      </PageHead>
      <Cards stats={stats.value} />
      <Facts hour={hour} />
      <RangeBar range={range} type={type} />
      {range === "live" ? <LiveCharts /> : <SeriesCharts range={range} type={type} />}
      <div class="halves">
        <ByType stats={stats.value} />
        <LastFailures />
      </div>
      {can("operate") && <CleanUp />}
    </>
  );
}

const CARDS: Shown[] = ["pending", "processing", "completed", "failed", "cancelled", "buried"];

function Cards({ stats }: { stats: Stats | null }) {
  const beside: Partial<Record<Shown, string | false>> = stats
    ? {
        pending: stats.delayed > 0 && `${short(stats.delayed)} delayed`,
        failed: stats.retrying > 0 && `${short(stats.retrying)} retrying`,
      }
    : {};
  return (
    <div class="cards">
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

function Facts({ hour }: { hour: Resource<Series> }) {
  const ended = hour.data?.points.reduce((sum, { ended: e }) => sum + n(e.completed) + n(e.failed) + n(e.buried), 0);
  const failed = hour.data?.points.reduce((sum, { ended: e }) => sum + n(e.failed) + n(e.buried), 0) ?? 0;
  const recent = samples.value.slice(-60);
  const rate = recent.length > 4 ? recent.reduce((sum, each) => sum + each.completed + each.failed, 0) / recent.length : null;
  const oldest = useResource("oldest", (signal) => take(api.GET("/api/metrics/oldest", { signal })), { every: 5000 }).data;
  const waiting = stats.value ? stats.value.pending - stats.value.delayed + stats.value.retrying : 0;
  return (
    <dl class="strip">
      <Fact name="Tasks in the last hour" value={ended === undefined ? "–" : count(ended)} />
      <Fact name="Of them failed" value={ended ? `${((failed / ended) * 100).toFixed(1)} %` : "–"} />
      <Fact name="Now" value={rate === null ? "–" : `${rate.toFixed(1)}/s`} />
      <Fact name="Waiting is done in" value={rate && waiting ? span(waiting / rate) : "–"} />
      <Fact
        name="Oldest waiting"
        value={oldest?.dueAt ? span(Math.max(seconds(oldest.dueAt, now.value), 0)) : oldest ? "nothing waits" : "–"}
        to={oldest?.id ? `/tasks/${oldest.id}` : undefined}
      />
      <Fact name="Workers alive" value={snapshot.value ? String(snapshot.value.workersAlive) : "–"} to="/workers" />
    </dl>
  );
}

function Fact({ name, value, to }: { name: string; value: string; to?: string | undefined }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{to ? <a href={href(to)}>{value}</a> : value}</dd>
    </div>
  );
}

function RangeBar({ range, type }: { range: string; type: string }) {
  const types = Object.keys(stats.value?.byType ?? {}).sort();
  return (
    <div class="range-bar">
      <div class="segments" role="group" aria-label="Time shown">
        {Object.entries(RANGES).map(([key, [name]]) => (
          <button key={key} type="button" aria-pressed={key === range} onClick={() => setQuery({ range: key === "live" ? null : key })}>
            {name}
          </button>
        ))}
      </div>
      {range !== "live" && (
        <label class="field">
          <span class="unseen">Type in the charts</span>
          <select value={type} onChange={(event) => setQuery({ type: event.currentTarget.value || null })}>
            <option value="">All types</option>
            {types.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

const rate = (value: number) => (value < 10 && value % 1 ? `${value.toFixed(1)}/s` : `${Math.round(value)}/s`);

function LiveCharts() {
  const shown = samples.value;
  const times = shown.map((each) => each.at);
  const line = (name: string, color: string, pick: (sample: (typeof shown)[0]) => number, filled = false): Line => ({
    name,
    color,
    filled,
    values: shown.map(pick),
  });
  return (
    <div class="halves">
      <Chart
        title="Throughput"
        times={times}
        format={rate}
        empty="Listening: the first seconds are on their way."
        lines={[line("completed", "completed", (each) => each.completed, true), line("failed", "failed", (each) => each.failed)]}
      />
      <Chart
        title="Queue depth"
        times={times}
        format={(value) => short(Math.round(value))}
        empty="Listening: the first seconds are on their way."
        lines={[line("waiting", "waiting", (each) => each.waiting, true), line("running", "running", (each) => each.running)]}
      />
    </div>
  );
}

function SeriesCharts({ range, type }: { range: string; type: string }) {
  const length = RANGES[range]?.[1] ?? 3600;
  const series = useResource(`series ${range} ${type}`, (signal) => getSeries(length, type, signal), { every: READING });
  if (series.problem && !series.data) return <Trouble problem={series.problem} retry={series.refresh} />;
  if (!series.data) return <Loading rows={4} />;
  return <FourCharts series={series.data} />;
}

function FourCharts({ series }: { series: Series }) {
  const { points, stepSeconds } = series;
  const lines = useMemo(() => {
    const of = (name: string, color: string, pick: (point: Series["points"][0]) => number | null, filled = false): Line => ({
      name,
      color,
      filled,
      values: points.map(pick),
    });
    return {
      times: points.map((point) => Date.parse(point.at) / 1000),
      ended: [
        of("completed", "completed", ({ ended }) => n(ended.completed) / stepSeconds, true),
        of("failed", "failed", ({ ended }) => (n(ended.failed) + n(ended.buried)) / stepSeconds),
        of("retried", "p95", ({ ended }) => n(ended.retried) / stepSeconds),
        of("cancelled", "other", ({ ended }) => n(ended.cancelled) / stepSeconds),
      ],
      depth: [
        of("waiting", "waiting", ({ depth }) => (depth ? depth.due + depth.retrying : null), true),
        of("delayed", "other", ({ depth }) => depth?.delayed ?? null),
        of("running", "running", ({ depth }) => depth?.running ?? null),
      ],
      wait: (["p50", "p95", "p99"] as const).map((p) => of(p, p, ({ wait }) => wait[p])),
      run: (["p50", "p95", "p99"] as const).map((p) => of(p, p, ({ run }) => run[p])),
    };
  }, [series]);
  const nothing = "Nothing ended in this time.";
  return (
    <div class="halves">
      <Chart title="Throughput" times={lines.times} lines={lines.ended} format={rate} empty={nothing} />
      <Chart title="Queue depth" times={lines.times} lines={lines.depth} format={(v) => short(Math.round(v))} empty="Nobody looked in this time." />
      <Chart title="Time waited" times={lines.times} lines={lines.wait} format={span} empty={nothing} />
      <Chart title="Time run" times={lines.times} lines={lines.run} format={span} empty={nothing} />
    </div>
  );
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
      {types.length ? (
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
  return (
    <Panel title="Last failures" aside={<a href={href("/errors")}>All errors</a>}>
      {failures.problem && <Trouble problem={failures.problem} retry={failures.refresh} />}
      {failures.loading ? (
        <Loading rows={5} />
      ) : failures.data?.tasks.length ? (
        <ul class="failures">
          {failures.data.tasks.map((task) => (
            <Failure key={task.id} task={task} />
          ))}
        </ul>
      ) : (
        <Empty title="No failures. Good." />
      )}
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
          {task.attempts}/{task.maxAttempts} · <Ago at={task.completedAt ?? task.updatedAt} />
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
