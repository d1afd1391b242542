/** The charts of the overview: the last minutes as this page heard them, or hours and days as the workers noted them. */

import { useMemo } from "preact/hooks";
import { getSeries, type Series } from "../api/metrics";
import { now } from "../clock";
import { short, span } from "../format";
import { stats } from "../live";
import { query, setQuery } from "../router";
import { useResource } from "../resource";
import { LIVE_SECONDS, type Sample, samples } from "../samples";
import { Loading, Panel, Trouble } from "../ui/basic";
import { Chart, type Line } from "../ui/chart";
import { Unread } from "../ui/listed";

const RANGES: Record<string, [string, number]> = {
  live: ["Live", 0],
  "1h": ["1 h", 3600],
  "6h": ["6 h", 21_600],
  "24h": ["24 h", 86_400],
  "7d": ["7 d", 604_800],
  "30d": ["30 d", 2_592_000],
};
export const READING = 15_000;
const SHORTEST_STEP = 15;
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

const rate = (value: number) => `${value < 10 ? Number(value.toFixed(value < 1 ? 2 : 1)) : Math.round(value)}/s`;

/** The last minutes: step by step as the service knows them, then second by second since this page listens. */
function useLive(): Sample[] {
  const before = useResource("last minutes", (signal) => getSeries(LIVE_SECONDS, "", signal)).data;
  const heard = samples.value;
  const since = heard[0]?.at ?? now.peek() / 1000;
  const earlier = (before?.points ?? []).flatMap((point) => {
    const start = Date.parse(point.at) / 1000;
    // The last step is not over, and too short to tell anything when it has just begun.
    const lasted = Math.min(before!.stepSeconds, since - start);
    if (lasted < SHORTEST_STEP) return [];
    return {
      at: start + lasted / 2,
      completed: n(point.ended.completed) / lasted,
      failed: (n(point.ended.failed) + n(point.ended.buried)) / lasted,
      waiting: point.depth && point.depth.due + point.depth.retrying,
      running: point.depth && point.depth.running,
    };
  });
  return [...earlier, ...heard];
}

function LiveCharts() {
  const shown = useLive();
  const times = shown.map((each) => each.at);
  const line = (name: string, color: string, pick: (sample: Sample) => number | null, filled = false): Line => ({
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
        least={1}
        empty="Waiting for the first seconds of data."
        atLeast={LIVE_SECONDS}
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
        lines={[line("waiting", "waiting", (each) => each.waiting, true), line("running", "running", (each) => each.running)]}
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
      {["Throughput", "Queue depth", "Time waited", "Time run"].map((title) => (
        <Panel key={title} title={title} class="chart">
          <Loading rows={1} />
        </Panel>
      ))}
    </div>
  );
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
  const nothing = "No task ended in this time.";
  return (
    <div class="halves">
      <Chart title="Throughput" times={lines.times} lines={lines.ended} format={rate} least={1} empty={nothing} />
      <Chart title="Queue depth" times={lines.times} lines={lines.depth} format={(v) => short(Math.round(v))} least={1} whole empty="No data in this time." />
      <Chart title="Time waited" times={lines.times} lines={lines.wait} format={span} least={0.01} empty={nothing} />
      <Chart title="Time run" times={lines.times} lines={lines.run} format={span} least={0.01} empty={nothing} />
    </div>
  );
}
