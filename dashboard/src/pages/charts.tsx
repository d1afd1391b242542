/** The charts of the overview: the last minutes as this page heard them, or hours and days as the workers noted them. */

import { useMemo } from "preact/hooks";
import { getSeries, type Series } from "../api/metrics";
import { now } from "../clock";
import { localTime, short, span } from "../format";
import { stats } from "../live";
import { go, href, query, setQuery } from "../router";
import { useResource } from "../resource";
import { LIVE_SECONDS, type Sample, samples } from "../samples";
import { Loading, Panel, Trouble } from "../ui/basic";
import { useChanges } from "../ui/changes";
import { Chart, type Line } from "../ui/chart";
import { TypeChoice } from "../ui/choices";
import { Unread } from "../ui/listed";

export const RANGES: Record<string, [string, number]> = {
  live: ["Live", 0],
  "1h": ["1 h", 3600],
  "6h": ["6 h", 21_600],
  "24h": ["24 h", 86_400],
  "7d": ["7 d", 604_800],
  "30d": ["30 d", 2_592_000],
};
export const READING = 15_000;
/** Seconds after which what has ended is counted: workers say it with their heartbeats. */
const LATE = 12;
const n = (value: number | undefined) => value ?? 0;

/** How many tasks came to one of these ends. */
export function ended({ points }: Series, ...ends: (keyof Series["points"][0]["ended"])[]): number {
  return points.reduce((sum, point) => sum + ends.reduce((all, end) => all + n(point.ended[end]), 0), 0);
}

export function Charts() {
  const range = RANGES[query.value.get("range") ?? ""] ? query.value.get("range")! : "live";
  const type = query.value.get("type") ?? "";
  return (
    <>
      <RangeBar range={range} type={type} />
      {range === "live" ? <LiveCharts /> : <SeriesCharts range={range} type={type} />}
    </>
  );
}

function RangeBar({ range, type }: { range: string; type: string }) {
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
        <label class="choice">
          <input
            type="checkbox"
            checked={query.value.get("scale") === "log"}
            onChange={(event) => setQuery({ scale: event.currentTarget.checked ? "log" : null }, true)}
          />
          Log scale for durations
        </label>
      )}
      {range !== "live" && <TypeChoice type={type} label="Type in the charts" />}
    </div>
  );
}

/** The tasks that were created in a stretch of a chart. */
function openTasks(from: number, to: number): void {
  go(href("/tasks", { after: localTime(from * 1000), before: localTime(to * 1000), type: query.peek().get("type") ?? undefined }));
}

const rate = (value: number) => `${value < 10 ? Number(value.toFixed(value < 1 ? 2 : 1)) : Math.round(value)}/s`;

/** The last minutes: step by step as the service knows them, then second by second since this page listens. */
function useLive(): Sample[] {
  const before = useResource("last minutes", (signal) => getSeries(LIVE_SECONDS, "", signal)).data;
  const heard = samples.value;
  const since = heard[0]?.at ?? now.peek() / 1000;
  const known = (before?.points ?? []).slice(Math.max(firstKnown(before?.points ?? []), 0));
  const earlier = known.flatMap((point) => {
    const start = Date.parse(point.at) / 1000;
    const lasted = before!.stepSeconds;
    // Of a step that is not over, or was just now, not all is counted: it would look like a collapse.
    if (start + lasted + LATE > since) return [];
    return {
      at: start + lasted / 2,
      completed: n(point.ended.completed) / lasted,
      failed: (n(point.ended.failed) + n(point.ended.buried)) / lasted,
      ready: point.depth && point.depth.due + point.depth.retrying,
      running: point.depth && point.depth.running,
    };
  });
  return [...earlier, ...heard];
}

function LiveCharts() {
  const shown = useLive();
  const marks = useChanges(3600);
  const times = shown.map((each) => each.at);
  const line = (name: string, color: string, pick: (sample: Sample) => number | null, filled = false): Line => ({
    name,
    color,
    filled,
    values: shown.map(pick),
    bridged: true,
  });
  return (
    <div class="halves">
      <Chart
        title="Throughput"
        times={times}
        format={rate}
        least={1}
        empty="Waiting for the first seconds of data."
        atLeast={LIVE_SECONDS}
        chosen={openTasks}
        marks={marks}
        lines={[line("completed", "completed", (each) => each.completed, true), line("failed", "failed", (each) => each.failed)]}
      />
      <Chart
        title="Queue depth"
        times={times}
        least={1}
        whole
        format={(value) => short(Math.round(value))}
        empty="Waiting for the first seconds of data."
        atLeast={LIVE_SECONDS}
        chosen={openTasks}
        marks={marks}
        lines={[line("ready", "waiting", (each) => each.ready, true), line("running", "running", (each) => each.running)]}
      />
    </div>
  );
}

function SeriesCharts({ range, type }: { range: string; type: string }) {
  const length = RANGES[range]?.[1] ?? 3600;
  const series = useResource(`series ${range} ${type}`, (signal) => getSeries(length, type, signal), { every: READING });
  if (series.problem && !series.data) return <Trouble problem={series.problem} retry={series.refresh} />;
  if (!series.data) return <AwaitedCharts />;
  return (
    <>
      <Unread source={series} />
      <FourCharts series={series.data} />
    </>
  );
}

function AwaitedCharts() {
  return (
    <div class="halves">
      {["Throughput", "Queue depth", "Queue wait", "Run time"].map((title) => (
        <Panel key={title} title={title} class="chart">
          <Loading rows={1} />
        </Panel>
      ))}
    </div>
  );
}

type Point = Series["points"][0];

/** Where the points begin to say something: before the first attempt or sample nothing is known, which is not nothing done. */
function firstKnown(points: Point[]): number {
  return points.findIndex((point) => point.depth !== null || Object.values(point.ended).some(Boolean));
}

/** How many seconds of each step have passed; 0 for one of which too little has, or is counted, to say anything. */
function lengths(points: Point[], step: number): number[] {
  return points.map((point) => {
    const passed = now.peek() / 1000 - Date.parse(point.at) / 1000;
    if (passed >= step + LATE) return step;
    return passed < Math.max(step / 4, LATE * 6) ? 0 : Math.min(passed, step);
  });
}

/** How many wait and run at this moment; the samples in the chart are each the most of its step. */
function currentDepth(type: string | null) {
  const counts = (type ? stats.value?.byType[type] : stats.value) as Record<string, number> | null | undefined;
  if (!counts) return undefined;
  const delayed = n(counts.delayed);
  return { ready: n(counts.pending) - delayed - n(counts.waiting) + n(counts.retrying), delayed, running: n(counts.processing) };
}

function FourCharts({ series }: { series: Series }) {
  const { points, stepSeconds } = series;
  const current = currentDepth(series.type);
  const marks = useChanges(points.length * stepSeconds);
  const lines = useMemo(() => {
    const of = (name: string, color: string, pick: (point: Point, at: number) => number | null, filled = false): Line => ({
      name,
      color,
      filled,
      values: points.map(pick),
    });
    const lasted = lengths(points, stepSeconds);
    const first = firstKnown(points);
    const per = (point: Point, at: number, ...ends: (keyof Point["ended"])[]) => {
      const length = lasted[at];
      if (!length || first < 0 || at < first) return null;
      return ends.reduce((sum, end) => sum + n(point.ended[end]), 0) / length;
    };
    return {
      times: points.map((point) => Date.parse(point.at) / 1000),
      ended: [
        of("completed", "completed", (point, at) => per(point, at, "completed"), true),
        of("failed", "failed", (point, at) => per(point, at, "failed", "buried")),
        of("retried", "p95", (point, at) => per(point, at, "retried")),
        of("cancelled", "other", (point, at) => per(point, at, "cancelled")),
      ],
      depth: [
        { ...of("ready", "waiting", ({ depth }) => (depth ? depth.due + depth.retrying : null), true), now: current?.ready },
        { ...of("delayed", "other", ({ depth }) => depth?.delayed ?? null), now: current?.delayed },
        { ...of("running", "running", ({ depth }) => depth?.running ?? null), now: current?.running },
      ],
      wait: (["p50", "p95", "p99"] as const).map((p) => of(p, p, ({ wait }) => wait[p])),
      run: (["p50", "p95", "p99"] as const).map((p) => of(p, p, ({ run }) => run[p])),
    };
  }, [series, current?.ready, current?.delayed, current?.running]);
  const nothing = "No task finished in this time.";
  // Of the step that has just begun too little has passed to draw how many finish in it.
  const finished = points.some((point) => Object.values(point.ended).some(Boolean));
  const soon = "The first tasks have just finished; the chart shows them in a moment.";
  const log = query.value.get("scale") === "log";
  return (
    <div class="halves">
      <Chart title="Throughput" times={lines.times} lines={lines.ended} format={rate} least={1} empty={finished ? soon : nothing} chosen={openTasks} marks={marks} />
      <Chart title="Queue depth" times={lines.times} lines={lines.depth} format={(v) => short(Math.round(v))} least={1} whole empty="No data: no worker was running." chosen={openTasks} marks={marks} />
      <Chart title="Queue wait" times={lines.times} lines={lines.wait} format={span} least={0.01} log={log} empty={nothing} chosen={openTasks} marks={marks} />
      <Chart title="Run time" times={lines.times} lines={lines.run} format={span} least={0.01} log={log} empty={nothing} chosen={openTasks} marks={marks} />
    </div>
  );
}
