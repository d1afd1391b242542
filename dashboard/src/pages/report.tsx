/** A report over any time: how much was done, how much of it failed, how long it took, and how objectives stand. Prints well. */

import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { api, take } from "../api/client";
import { type Series, type TypeWork } from "../api/metrics";
import { absolute, budgetText, change, count, localTime, percent, plural, span } from "../format";
import { href, query, setQuery } from "../router";
import { type Resource, useResource } from "../resource";
import { Button, Empty, Fact, PageHead, Panel } from "../ui/basic";
import { Listed } from "../ui/listed";
import { ChangeLines, useChanges } from "../ui/changes";
import { Measured, TimeAxis } from "../ui/measured";
import { Segments } from "../ui/segments";
import { Table } from "../ui/table";
import "../styles/overview.css";
import "../styles/report.css";

const RANGES: [string, string][] = [
  ["3600", "1 h"],
  ["86400", "24 h"],
  ["604800", "7 d"],
  ["2592000", "30 d"],
];
const LONGEST = 30 * 86_400;
const SHORTEST = 60;
const READING = 60_000;

interface Time {
  seconds: number;
  until: string | null;
}

/** What the address asks for: the last so many seconds, or from one moment to another. */
function timeOf(at: URLSearchParams): Time {
  const [from, to] = [Date.parse(at.get("from") ?? ""), Date.parse(at.get("to") ?? "")];
  if (from && to && to > from) {
    return { seconds: Math.min(Math.max(Math.round((to - from) / 1000), SHORTEST), LONGEST), until: new Date(to).toISOString() };
  }
  return { seconds: Math.min(Math.max(Number(at.get("seconds")) || 86_400, SHORTEST), LONGEST), until: null };
}

function useWork({ seconds, until }: Time) {
  return useResource(
    `work ${seconds} ${until}`,
    (signal) => take(api.GET("/api/metrics/types", { params: { query: { seconds, ...(until ? { until } : {}) } }, signal })),
    { every: until ? undefined : READING },
  );
}

export function ReportPage() {
  const time = timeOf(query.value);
  const end = time.until ? Date.parse(time.until) : Math.floor(Date.now() / 60_000) * 60_000;
  const work = useWork(time);
  const before = useWork({ seconds: time.seconds, until: new Date(end - time.seconds * 1000).toISOString() });
  const series = useResource(
    `report ${time.seconds} ${time.until}`,
    (signal) => take(api.GET("/api/metrics/series", { params: { query: { seconds: time.seconds, ...(time.until ? { until: time.until } : {}) } }, signal })),
    { every: time.until ? undefined : READING },
  );
  const some = Boolean(work.data && ended(work.data.all));
  return (
    <>
      <PageHead title="Report">
        <Button onClick={() => print()}>Print</Button>
      </PageHead>
      <div class="range-bar no-print">
        <Segments name="seconds" label="Time of the report" chosen={time.until ? "" : String(time.seconds)} options={RANGES} also={{ from: null, to: null }} />
        <Between end={end} seconds={time.seconds} />
      </div>
      <p class="report-time">
        {absolute(end - time.seconds * 1000)} – {absolute(end)}, compared with the same length of time before
      </p>
      <Listed source={work} some={some} framed empty={<Empty title="No task finished in this time." />}>
        {work.data && (
          <>
            <Summary now={work.data.all} before={before.data?.all ?? null} seconds={time.seconds} />
            <Done series={series} />
            <ByType work={work.data.types} before={before.data?.types ?? []} />
          </>
        )}
      </Listed>
      <Objectives seconds={time.seconds} current={!time.until} />
    </>
  );
}

function Between({ end, seconds }: { end: number; seconds: number }) {
  // What was typed stays, also while the other end is still to come.
  const typed = { from: query.value.get("from") ?? localTime(end - seconds * 1000), to: query.value.get("to") ?? localTime(end) };
  const set = (name: "from" | "to") => (event: Event) => {
    setQuery({ ...typed, [name]: (event.currentTarget as HTMLInputElement).value, seconds: null });
  };
  return (
    <>
      <label class="field">
        From <input type="datetime-local" value={typed.from.slice(0, 16)} onChange={set("from")} />
      </label>
      <label class="field">
        To <input type="datetime-local" value={typed.to.slice(0, 16)} onChange={set("to")} />
      </label>
    </>
  );
}

const n = (value: number | undefined) => value ?? 0;
const failed = ({ ended }: TypeWork) => n(ended.failed) + n(ended.buried);
const ended = (work: TypeWork) => n(work.ended.completed) + failed(work);
const rate = (work: TypeWork | null) => (work && ended(work) ? (failed(work) / ended(work)) * 100 : null);
const seconds = (value: number | null) => (value === null ? "–" : span(value));

/** Each with its unit on one line. */
function Percentiles({ of }: { of: TypeWork["wait"] }) {
  const all = [of.p50, of.p95, of.p99];
  return (
    <>
      {all.map((value, at) => (
        <Fragment key={at}>
          <span class="unbroken">
            {seconds(value)}
            {at < all.length - 1 && " ·"}
          </span>{" "}
        </Fragment>
      ))}
    </>
  );
}

function Summary({ now, before, seconds: length }: { now: TypeWork; before: TypeWork | null; seconds: number }) {
  const perHour = (ended(now) / length) * 3600;
  const [failing, failedBefore] = [rate(now), rate(before)];
  return (
    <dl class="strip report-strip">
      <Fact name="Tasks finished">
        {count(ended(now))} <span class="hint">{change(ended(now), before && ended(before))}</span>
      </Fact>
      <Fact name="Throughput">
        {perHour < 10 ? perHour.toFixed(1) : count(Math.round(perHour))} / h
      </Fact>
      <Fact name="Failure rate">
        {percent(failing)} <span class="hint">{failedBefore === null ? "" : `before: ${percent(failedBefore)}`}</span>
      </Fact>
      <Fact name="Attempts that were retried">{count(n(now.ended.retried))}</Fact>
      <Fact name="Queue wait p50 · p95 · p99">
        <Percentiles of={now.wait} />
      </Fact>
      <Fact name="Run time p50 · p95 · p99">
        <Percentiles of={now.run} />
      </Fact>
    </dl>
  );
}

const [HEIGHT, BELOW] = [180, 18];

/** Finished tasks by step: what completed, and on top of it what failed. */
function Done({ series }: { series: Resource<Series> }) {
  const points = series.data?.points ?? [];
  const sums = points.map((point) => ({ good: n(point.ended.completed), bad: n(point.ended.failed) + n(point.ended.buried) }));
  const most = Math.max(1, ...sums.map(({ good, bad }) => good + bad));
  const step = series.data?.stepSeconds ?? 60;
  const all = sums.reduce((sum, each) => sum + each.good + each.bad, 0);
  const since = Date.parse(points[0]?.at ?? "") || 0;
  const until = since + sums.length * step * 1000;
  const changes = useChanges(since ? (Date.now() - since) / 1000 : 0);
  return (
    <Panel title="Finished tasks" aside={<Keys most={`at most ${count(most)} in ${span(step)}`} />}>
      <Measured class="report-bars">
        {(width) => (
          <svg width={width} height={HEIGHT + BELOW} role="img" aria-label={`${plural(all, "task")} finished, at most ${count(most)} in ${span(step)}`}>
            {sums.map((sum, at) => (
              <Column key={points[at]!.at} {...sum} most={most} left={(at * width) / sums.length} width={width / sums.length} />
            ))}
            {sums.length > 0 && (
              <>
                <ChangeLines changes={changes} since={since} until={until} x={(at) => ((at - since) / (until - since)) * width} height={HEIGHT} />
                <TimeAxis since={since} until={until} left={0} right={width} y={HEIGHT + 14} />
              </>
            )}
          </svg>
        )}
      </Measured>
    </Panel>
  );
}

function Keys({ most }: { most: string }) {
  return (
    <>
      {["completed", "failed"].map((status) => (
        <span key={status} class="key">
          <i class={`dot s-${status}`} />
          {status}
        </span>
      ))}
      <span>{most}</span>
    </>
  );
}

function Column({ good, bad, most, left, width }: { good: number; bad: number; most: number; left: number; width: number }) {
  const high = (value: number) => (value / most) * HEIGHT;
  const wide = Math.max(width - 0.6, 0.4);
  return (
    <g>
      <rect class="s-completed" x={left} y={HEIGHT - high(good)} width={wide} height={high(good)} />
      <rect class="s-failed" x={left} y={HEIGHT - high(good + bad)} width={wide} height={high(bad)} />
    </g>
  );
}

const COLUMNS = [
  "Type",
  ...["Finished", "Change", "Failure rate", "Retried", "Queue wait p50", "p95", "Run time p50", "p95 ", "p99"].map((name) => ({ name, number: true })),
];

/** How many types are shown before somebody asks for all; on paper all are there. */
const SHOWN = 50;

function ByType({ work, before }: { work: TypeWork[]; before: TypeWork[] }) {
  const [all, setAll] = useState(false);
  const known = new Map(before.map((each) => [each.type, each]));
  const rows = [...work].sort((a, b) => ended(b) - ended(a));
  return (
    <Panel title="By type" class="report-types" aside={plural(rows.length, "type")}>
      <Table label="By type" columns={COLUMNS} whole>
        {rows.map((each, at) => {
          const earlier = known.get(each.type);
          return (
            <tr key={each.type} class={at >= SHOWN && !all ? "on-paper" : undefined}>
              <td class="which">
                <a href={href("/latency", { type: each.type })}>{each.type}</a>
              </td>
              <td class="number">{count(ended(each))}</td>
              <td class="number">{change(ended(each), earlier && ended(earlier)) || "–"}</td>
              <td class="number">
                <span class={n(rate(each) ?? 0) >= 5 ? "late" : undefined}>{percent(rate(each))}</span>
              </td>
              <td class="number">{count(n(each.ended.retried))}</td>
              <td class="number">{seconds(each.wait.p50)}</td>
              <td class="number">{seconds(each.wait.p95)}</td>
              <td class="number">{seconds(each.run.p50)}</td>
              <td class="number">{seconds(each.run.p95)}</td>
              <td class="number">{seconds(each.run.p99)}</td>
            </tr>
          );
        })}
      </Table>
      {rows.length > SHOWN && !all && (
        <div class="pages inside no-print">
          <Button onClick={() => setAll(true)}>Show {count(rows.length - SHOWN)} more</Button>
        </div>
      )}
    </Panel>
  );
}

/** Objectives are measured back from now: over another time there is nothing to say of them. */
function Objectives({ seconds: length, current }: { seconds: number; current: boolean }) {
  const found = useResource(current ? `objectives ${length}` : null, (signal) => take(api.GET("/api/objectives", { params: { query: { seconds: length } }, signal })));
  const all = found.data?.objectives ?? [];
  if (!current || !all.length) return null;
  return (
    <Panel title="Objectives">
      <Table label="Objectives" columns={["Type", "Objective", { name: "Within", number: true }, { name: "Error budget left", number: true }]}>
        {all.map((each) => (
          <tr key={`${each.type} ${each.kind}`}>
            <td class="which">{each.type ?? "All types"}</td>
            <td class="whole" data-label="Objective">
              {each.target} % {each.kind === "wait" ? "start" : "end"} within {span(each.withinSeconds)}
            </td>
            <td class="number half" data-label="Within">
              {percent(each.within)}
            </td>
            <td class="number whole" data-label="Error budget left">
              <span class={each.atRisk ? "late" : undefined}>{each.budget === null ? "–" : budgetText(each.budget)}</span>
            </td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}
