/** Lanes: what ran where and when, by worker slot or by concurrency key, from the attempts that are recorded. */

import { useState } from "preact/hooks";
import { api, take } from "../../api/client";
import type { components } from "../../api/schema";
import { absolute, count, localTime, plural, span, timeOfDay } from "../../format";
import { go, href, query, setQuery } from "../../router";
import { useResource } from "../../resource";
import { Button, Empty, PageHead, Panel } from "../../ui/basic";
import { TypeChoice } from "../../ui/choices";
import { Listed } from "../../ui/listed";
import { Segments } from "../../ui/segments";
import { Table } from "../../ui/table";
import { type Change, useChanges } from "../../ui/changes";
import { Drawing, OTHERS, type Stretch } from "./drawing";
import "../../styles/overview.css";
import "../../styles/lanes.css";

export type Lanes = components["schemas"]["LaneInfos"];
export type Lane = Lanes["lanes"][0];

const RANGES: [string, string][] = [
  ["900", "15 min"],
  ["3600", "1 h"],
  ["21600", "6 h"],
  ["86400", "24 h"],
];
const LONGEST = 86_400 * 7;
/** Of the types without a colour of their own, so many are named to the pointer. */
const NAMED = 40;
/** Milliseconds; what is long takes the service longer to add up, and changes less to the eye. */
const reading = (seconds: number) => (seconds > 7200 ? 30_000 : 5000);

export function LanesPage() {
  const at = query.value;
  const seconds = Math.min(Math.max(Math.round(Number(at.get("seconds")) || 3600), 1), LONGEST);
  const until = at.get("until") && !Number.isNaN(Date.parse(at.get("until")!)) ? new Date(at.get("until")!).toISOString() : null;
  const by = at.get("by") === "key" ? "key" : "worker";
  const type = at.get("type") ?? "";
  const asked = { seconds, by: by as "key" | "worker", ...(until ? { until } : {}), ...(type ? { type } : {}) };
  const found = useResource(
    JSON.stringify(asked),
    (signal) => take(api.GET("/api/metrics/lanes", { params: { query: asked }, signal })),
    { every: until ? undefined : reading(seconds) },
  );
  const changes = useChanges((Date.now() - (until ? Date.parse(until) : Date.now())) / 1000 + seconds);
  return (
    <>
      <PageHead title="Lanes" />
      <div class="range-bar">
        <Segments name="seconds" label="Time shown" chosen={until ? "" : String(seconds)} options={RANGES} also={{ until: null }} />
        <Segments name="by" label="What a lane is" chosen={by} options={[["worker", "Worker slots"], ["key", "Concurrency keys"]]} />
        <TypeChoice type={type} />
        <Steps seconds={seconds} until={until} />
      </div>
      <Panel title={by === "worker" ? "Worker slots" : "Concurrency keys"} class="lanes" aside={found.data && <Aside data={found.data} />}>
        <Listed
          source={found}
          some={Boolean(found.data?.lanes.length)}
          rows={8}
          empty={<Empty title={by === "key" && !type ? "No task with a concurrency key ran in this time." : "Nothing ran in this time."} />}
        >
          {found.data && <Shown data={found.data} changes={changes} type={type} />}
        </Listed>
      </Panel>
    </>
  );
}

function Aside({ data }: { data: Lanes }) {
  const left = data.leftOff > 0 && ` · ${plural(data.leftOff, "lane")} not shown`;
  const days = Date.parse(data.until) - Date.parse(data.since) > 43_200_000;
  return (
    <>
      {plural(data.count, "attempt")} · {days ? absolute(data.since) : timeOfDay(data.since)} –{" "}
      {days ? absolute(data.until) : timeOfDay(data.until)}
      {left}
    </>
  );
}

/** Through the time without a mouse: earlier, later, and more of it. */
function Steps({ seconds, until }: { seconds: number; until: string | null }) {
  const end = until ? Date.parse(until) : Date.now();
  const show = (length: number, to: number) => {
    const now = to >= Date.now();
    setQuery({ seconds: String(Math.round(length)), until: now ? null : new Date(to).toISOString() });
  };
  return (
    <span class="segments" role="group" aria-label="Move through the time">
      <button type="button" onClick={() => show(seconds, end - seconds * 500)}>
        ← Earlier
      </button>
      <button type="button" disabled={!until} onClick={() => show(seconds, end + seconds * 500)}>
        Later →
      </button>
      <button type="button" onClick={() => show(Math.min(seconds * 4, LONGEST), Math.min(end + seconds * 1500, Date.now()))}>
        Zoom out
      </button>
    </span>
  );
}

function Shown({ data, changes, type }: { data: Lanes; changes: Change[]; type: string }) {
  const [told, setTold] = useState("");
  const [chosen, setChosen] = useState<Stretch | null>(null);
  return (
    <>
      <Keys types={data.types} cells={data.stepSeconds !== null} />
      {chosen ? (
        <Chosen chosen={chosen} type={type} close={() => setChosen(null)} />
      ) : (
        <p class="lane-told">{told || "Point at a piece to see what ran. Drag over a stretch of time to zoom in or to see its tasks."}</p>
      )}
      <Drawing data={data} changes={changes} tell={setTold} chosen={chosen} choose={setChosen} />
      {data.madeAfter && <p class="hint lane-note">Only tasks created after {absolute(data.madeAfter)} were looked at.</p>}
      <Numbers data={data} />
    </>
  );
}

function Keys({ types, cells }: { types: string[]; cells: boolean }) {
  return (
    <p class="lane-keys">
      {types.slice(0, OTHERS).map((name, at) => (
        <span key={name} class="key" title={name}>
          <i class={`dot t${at}`} />
          {name}
        </span>
      ))}
      {types.length > OTHERS && (
        <span class="key" title={types.slice(OTHERS, OTHERS + NAMED).join(", ") + (types.length > OTHERS + NAMED ? ", …" : "")}>
          <i class="dot t-other" />
          {plural(types.length - OTHERS, "other type")}
        </span>
      )}
      <span class="key">
        <i class="dot t-bad" />
        {cells ? "many failed" : "failed"}
      </span>
      <span class="key">
        <b class="lost-mark">✕</b>lost
      </span>
    </p>
  );
}

function Chosen({ chosen, type, close }: { chosen: Stretch; type: string; close: () => void }) {
  const { from, to } = chosen;
  const zoom = () => {
    close();
    setQuery({ seconds: String(Math.max(1, Math.round((to - from) / 1000))), until: new Date(to).toISOString() });
  };
  return (
    <p class="lane-told" role="status">
      {absolute(from)} – {timeOfDay(to)} ({span((to - from) / 1000)}){" "}
      <Button kind="small" onClick={zoom}>
        Zoom in
      </Button>{" "}
      <Button kind="small" onClick={() => go(href("/tasks", { after: localTime(from), before: localTime(to), type: type || undefined }))}>
        Tasks of this time
      </Button>{" "}
      <Button kind="plain" onClick={close} label="Forget the stretch">
        ×
      </Button>
    </p>
  );
}

/** The same as numbers, for who does not see the picture, or wants them. */
function Numbers({ data }: { data: Lanes }) {
  const length = (Date.parse(data.until) - Date.parse(data.since)) / 1000;
  const columns = ["Lane", ...["Slots", "Busy", "Attempts", "Failed", "Lost"].map((name) => ({ name, number: true }))];
  return (
    <details class="lane-table">
      <summary>As a table</summary>
      <Table label="Lanes as a table" columns={columns}>
        {data.lanes.map((lane) => (
          <tr key={lane.name}>
            <td class="which">{lane.name}</td>
            <td class="number">{count(lane.slots)}</td>
            <td class="number">{((lane.busySeconds / length / lane.slots) * 100).toFixed(1)} %</td>
            <td class="number">{count(lane.count)}</td>
            <td class="number">{count(lane.failed)}</td>
            <td class="number">{count(lane.lost)}</td>
          </tr>
        ))}
      </Table>
    </details>
  );
}
