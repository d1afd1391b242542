/** Latency: how long tasks waited or ran, as a heat map over time, and how that compares with an objective. */

import { api, take } from "../api/client";
import type { components } from "../api/schema";
import { absolute, budgetText, count, localTime, percent, plural, span } from "../format";
import { go, href, query, setQuery } from "../router";
import { type Resource, useResource } from "../resource";
import { can } from "../session";
import { attempt, sayUndoable } from "../toasts";
import { Ago, Button, Empty, Fact, PageHead, Panel } from "../ui/basic";
import { Listed } from "../ui/listed";
import { TypeChoice } from "../ui/choices";
import { ChangeLines, markedOf, toldOf, useChanges } from "../ui/changes";
import { Measured, TimeAxis } from "../ui/measured";
import { Segments } from "../ui/segments";
import { Table } from "../ui/table";
import { RANGES, READING } from "./charts";
import "../styles/overview.css";

type Latency = components["schemas"]["Latency"];

/** Columns at most: more would be narrower than a finger. */
const COLUMNS = 96;
const WEEK = 7 * 86_400_000;
const STEPS = [60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200];

export function LatencyPage() {
  const at = query.value;
  const range = RANGES[at.get("range") ?? ""]?.[1] ? at.get("range")! : "24h";
  const seconds = RANGES[range]![1];
  const kind = at.get("kind") === "run" ? "run" : "wait";
  const type = at.get("type") ?? "";
  const stored = useResource("objectives", (signal) => take(api.GET("/api/objectives", { params: { query: { seconds } }, signal })), { live: true, every: READING });
  const holds = stored.data?.objectives.find((each) => (each.type ?? "") === type && each.kind === kind) ?? null;
  const within = positive(at.get("within")) ?? holds?.withinSeconds ?? 5;
  const target = positive(at.get("target")) ?? holds?.target ?? 99.5;
  const step = STEPS.find((each) => each * COLUMNS >= seconds) ?? 43_200;
  const asked = { seconds, step, kind: kind as "wait" | "run", within, target: Math.min(target, 99.999), ...(type ? { type } : {}) };
  const found = useResource(
    JSON.stringify(asked),
    (signal) => take(api.GET("/api/metrics/latency", { params: { query: asked }, signal })),
    { every: READING },
  );
  const compared = at.get("compare") === "week";
  const before = useResource(
    compared ? `a week before ${JSON.stringify(asked)}` : null,
    (signal) => take(api.GET("/api/metrics/latency", { params: { query: { ...asked, until: new Date(Date.now() - WEEK).toISOString() } }, signal })),
    { every: READING },
  );
  const title = kind === "wait" ? "Queue wait" : "Run time";
  return (
    <>
      <PageHead title="Latency" />
      <div class="range-bar">
        <Segments name="range" label="Time shown" chosen={range} options={Object.entries(RANGES).filter(([, [, length]]) => length).map(([key, [name]]) => [key, name])} />
        <Segments name="kind" label="What is shown" chosen={kind} options={[["wait", "Queue wait"], ["run", "Run time"]]} />
        <TypeChoice type={type} />
        <Objective within={within} target={target} verb={kind === "wait" ? "start" : "end"} />
        <label class="choice">
          <input type="checkbox" checked={compared} onChange={(event) => setQuery({ compare: event.currentTarget.checked ? "week" : null })} />
          Compare with a week before
        </label>
        <Keep type={type} kind={kind} within={within} target={target} holds={holds} done={stored.refresh} />
      </div>
      <Measures title={title} found={found} target={target} within={within} />
      {compared && <Measures title={`${title}, a week before`} found={before} target={target} within={within} />}
      <Objectives source={stored} />
    </>
  );
}

interface MeasuresProps {
  title: string;
  found: Resource<Latency>;
  target: number;
  within: number;
}

function Measures({ title, found, target, within }: MeasuresProps) {
  return (
    <Panel title={title} aside={found.data && plural(found.data.count, "attempt")}>
      <Listed source={found} some={Boolean(found.data?.count)} empty={<Empty title="No task finished in this time." />}>
        {found.data && (
          <>
            <Budget data={found.data} target={target} within={within} />
            <HeatMap data={found.data} />
          </>
        )}
      </Listed>
    </Panel>
  );
}

type Held = components["schemas"]["ObjectiveInfo"];

interface KeepProps {
  type: string;
  kind: "wait" | "run";
  within: number;
  target: number;
  holds: Held | null;
  done: () => void;
}

/** Make what is shown the objective of the type, which findings watch; or give it up. */
function Keep({ type, kind, within, target, holds, done }: KeepProps) {
  if (!can("operate")) return null;
  const what = type || "all types together";
  const put = (withinSeconds: number | null, percent: number) => async () => {
    await take(api.POST("/api/objectives", { body: { type: type || null, kind, withinSeconds, target: percent } }));
    setQuery({ within: null, target: null }, true);
    done();
  };
  const before = holds ? put(holds.withinSeconds, holds.target) : put(null, 99.5);
  const act = (work: () => Promise<void>, text: string) =>
    void attempt(async () => {
      await work();
      sayUndoable(text, before);
    });
  const same = holds?.withinSeconds === within && holds.target === target;
  return (
    <>
      {!same && (
        <Button kind="small" onClick={() => act(put(within, target), `The objective of ${what} is set.`)}>
          {type ? `Set as objective of ${type}` : "Set as overall objective"}
        </Button>
      )}
      {holds && (
        <Button kind="small" onClick={() => act(put(null, target), `The objective of ${what} is removed.`)}>
          Remove objective
        </Button>
      )}
    </>
  );
}

/** Every objective that is set, with what is left of its budget over the time that is shown. */
function Objectives({ source }: { source: Resource<{ objectives: Held[] }> }) {
  const all = source.data?.objectives ?? [];
  if (!all.length) return null;
  const columns = ["Type", "Objective", { name: "Attempts", number: true }, { name: "Within", number: true }, { name: "Error budget left", number: true }, "Set"];
  return (
    <Panel title="Objectives">
      <Table label="Objectives" columns={columns}>
        {all.map((each) => (
          <tr key={`${each.type} ${each.kind}`}>
            <td class="which">
              <a href={href("/latency", { type: each.type ?? undefined, kind: each.kind })}>{each.type ?? "All types"}</a>
            </td>
            <td class="whole" data-label="Objective">
              {each.target} % {each.kind === "wait" ? "start" : "end"} within {span(each.withinSeconds)}
            </td>
            <td class="number half" data-label="Attempts">
              {count(each.count)}
            </td>
            <td class="number half" data-label="Within">
              {percent(each.within)}
            </td>
            <td class="number whole" data-label="Error budget left">
              <span class={each.atRisk ? "late" : undefined}>{each.budget === null ? "–" : budgetText(each.budget)}</span>
            </td>
            <td class="half" data-label="Set">
              <Ago at={each.setAt} />
              {each.setBy && ` by ${each.setBy}`}
            </td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}

const positive = (text: string | null): number | null => (Number(text) > 0 ? Number(text) : null);

/** `99.5 % start within 5 s`, kept in the address like everything else. */
function Objective({ within, target, verb }: { within: number; target: number; verb: string }) {
  const set = (name: string) => (event: Event) => setQuery({ [name]: (event.currentTarget as HTMLInputElement).value || null }, true);
  return (
    <span class="objective">
      Objective:{" "}
      <label>
        <input type="number" min="1" max="99.999" step="any" value={target} onChange={set("target")} aria-label="Percent of the objective" /> %
      </label>{" "}
      {verb} within{" "}
      <label>
        <input type="number" min="0.001" step="any" value={within} onChange={set("within")} aria-label="Seconds of the objective" /> s
      </label>
    </span>
  );
}

function Budget({ data, target, within }: { data: Latency; target: number; within: number }) {
  if (data.within === null || data.budget === null) return null;
  const met = data.within >= target;
  return (
    <dl class="strip vitals">
      <Fact name={`Within ${span(within)}`}>
        <span class={met ? undefined : "late"}>{percent(data.within)}</span>
      </Fact>
      <Fact name="Objective">{target} %</Fact>
      <Fact name="Error budget left">
        <span class={data.budget > 0 ? undefined : "late"}>{budgetText(data.budget)}</span>
      </Fact>
    </dl>
  );
}

const ROW = 18;
const LEFT = 78;
const BELOW = 20;

/** A column for each step, a row for each doubling of the duration; the darker, the more tasks. */
function HeatMap({ data }: { data: Latency }) {
  return <Measured class="heat">{(width) => <Cells data={data} across={width} />}</Measured>;
}

function Cells({ data, across }: { data: Latency; across: number }) {
  const { points, bounds, stepSeconds } = data;
  const most = Math.max(1, ...points.flatMap((point) => point.counts));
  const width = (across - LEFT) / Math.max(points.length, 1);
  const since = Date.parse(points[0]?.at ?? "") || 0;
  const height = bounds.length * ROW;
  const until = since + points.length * stepSeconds * 1000;
  const changes = useChanges((Date.now() - since) / 1000);
  // The lines let the pointer through to the cells, so a column tells what was changed in its time.
  const marks = points.map(({ at }) => markedOf(changes, Date.parse(at), Date.parse(at) + stepSeconds * 1000).map(toldOf).join("\n"));
  const top = (row: number) => height - (row + 1) * ROW;
  const open = (at: string, row: number) => {
    const from = Date.parse(at);
    const term = data.kind === "wait" ? "wait" : "duration";
    const range = `${row ? bounds[row - 1] : ""}..${row < bounds.length - 1 ? `${bounds[row]}s` : ""}`;
    go(
      href("/tasks", {
        endedAfter: localTime(from),
        endedBefore: localTime(from + stepSeconds * 1000),
        search: range === ".." ? undefined : `${term}:${row < bounds.length - 1 ? range : `${bounds[row - 1]}s..`}`,
        type: data.type ?? undefined,
      }),
    );
  };
  return (
    <svg width={across} height={height + BELOW} role="img" aria-label={told(data)}>
      {bounds.map((bound, row) => (
        <text key={bound} class="t-edge" x={LEFT - 6} y={top(row) + 13} text-anchor="end">
          {row % 2 ? "" : bound < 0.001 ? span(bound) : `≤ ${span(bound)}`}
        </text>
      ))}
      {marks.map(
        (told, column) =>
          told && (
            <rect key={points[column]!.at} class="heat-mark" x={LEFT + column * width} y={0} width={width} height={height}>
              <title>{told}</title>
            </rect>
          ),
      )}
      {points.map((point, column) =>
        point.counts.map((number, row) =>
          number ? (
            <rect
              key={`${point.at} ${row}`}
              class={`heat-${Math.ceil((Math.log(number + 1) / Math.log(most + 1)) * 6)}`}
              x={LEFT + column * width}
              y={top(row)}
              width={Math.max(width - 0.5, 0.5)}
              height={ROW - 1}
              onClick={() => open(point.at, row)}
            >
              <title>{`${absolute(point.at)}: ${count(number)} ${data.kind === "wait" ? "waited" : "ran"} ${between(bounds, row)}${marks[column] && `\n${marks[column]}`}`}</title>
            </rect>
          ) : null,
        ),
      )}
      {points.length > 0 && (
        <>
          <ChangeLines changes={changes} since={since} until={until} x={(at) => LEFT + ((at - since) / (until - since)) * (across - LEFT)} height={height} />
          <TimeAxis since={since} until={until} left={LEFT} right={across} y={height + 15} />
        </>
      )}
    </svg>
  );
}

/** How long what a row counts took: from the bound below it to its own; the highest has no end. */
function between(bounds: number[], row: number): string {
  if (row === 0) return `up to ${span(bounds[0]!)}`;
  return row < bounds.length - 1 ? `${span(bounds[row - 1]!)} to ${span(bounds[row]!)}` : `over ${span(bounds[row - 1]!)}`;
}

function told(data: Latency): string {
  const kind = data.kind === "wait" ? "Queue wait" : "Run time";
  return `${kind} of ${plural(data.count, "attempt")} over time, up to ${span(data.bounds[data.bounds.length - 1] ?? 0)}; ${percent(data.within)} within the objective`;
}
