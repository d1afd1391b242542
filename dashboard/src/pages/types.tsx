/** Types: how each kind of task is doing, who works on it, and what holds it back. */

import { useState } from "preact/hooks";
import { resume } from "../actions";
import { api, type Control, take, type TypeInfo } from "../api/client";
import { getTypesWork, type TypeWork } from "../api/metrics";
import { byName, count, plural, short, span } from "../format";
import { href, query, setQuery } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Button, Empty, PageHead } from "../ui/basic";
import { News, useCalm } from "../ui/calm";
import { LimitDialog, PauseDialog } from "../ui/controls";
import { OrderChoice } from "../ui/choices";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";
import "../styles/types.css";

/** How many are drawn before somebody asks for more: as many as anybody reads, and fewer where each takes lines. */
const STEP = matchMedia("(max-width: 760px)").matches ? 20 : 50;
const WAIT = "Queue wait p50 · p95";
const RUN = "Run time p50 · p95";
const COLUMNS = [
  "Type",
  { name: "Ready", number: true },
  { name: "Running", number: true },
  { name: "Completed", number: true },
  { name: "Failed", number: true },
  { name: WAIT, number: true, title: "Median and 95th percentile of the last hour" },
  { name: RUN, number: true, title: "Median and 95th percentile of the last hour" },
  { name: "Workers", number: true },
  "Limits",
];

/** A type with what is known of its last hour. */
interface Kind {
  type: TypeInfo;
  work: TypeWork | undefined;
}

export function TypesPage() {
  const types = useResource("all types", (signal) => take(api.GET("/api/types", { signal })), { live: true });
  const control = useResource("control of types", (signal) => take(api.GET("/api/control", { signal })), { live: true });
  const work = useResource("work of types", (signal) => getTypesWork(3600, signal), { every: 15_000 });
  // All of a row at once: columns that find their width one after the other jump.
  const source = { ...types, loading: types.loading || control.loading || work.loading };
  const [asking, setAsking] = useState<{ what: "pause" | "limits"; type: string } | null>(null);
  const [most, setMost] = useState(STEP);
  const search = query.value.get("search") ?? "";
  const order = query.value.get("sort") ?? "";
  const worked = new Map(work.data?.map((each) => [each.type, each]));
  const known = types.data?.types.map((type): Kind => ({ type, work: worked.get(type.type) })) ?? [];
  const wanted = known.filter(({ type }) => type.type.toLowerCase().includes(search.toLowerCase()));
  const calm = useCalm(`types ${search} ${order}`, sorted(wanted, order), ({ type }) => type.type);
  const shown = calm.shown.slice(0, most);
  const close = () => {
    setAsking(null);
    control.refresh();
    types.refresh();
  };
  return (
    <>
      <PageHead title="Types">{types.data && known.length > 0 && <Counted kinds={known} found={wanted.length} total={types.data.total} />}</PageHead>
      {(source.loading || known.length > 0) && <Narrow search={search} order={order} />}
      <Listed framed source={source} some={wanted.length > 0} empty={known.length ? <Empty title="No type matches this search." /> : <NoTypes />}>
        {calm.frame(
          <>
            <News calm={calm} most={1000} />
            <Table label="Types" columns={COLUMNS} acts={can("operate")} framed>
              {shown.map((kind) => (
                <Row key={kind.type.type} {...kind} control={control.data} ask={(what) => setAsking({ what, type: kind.type.type })} refresh={close} />
              ))}
            </Table>
            {shown.length < calm.shown.length && (
              <div class="pages">
                <span class="soft">
                  {count(shown.length)} of {plural(calm.shown.length, "type")}
                </span>
                <Button onClick={() => setMost(most + STEP)}>Show {Math.min(STEP, calm.shown.length - shown.length)} more</Button>
              </div>
            )}
          </>,
        )}
      </Listed>
      {asking?.what === "pause" && <PauseDialog type={asking.type} close={close} />}
      {asking?.what === "limits" && <LimitDialog type={asking.type} close={close} />}
    </>
  );
}

const readyOf = (type: TypeInfo): number => type.pending - type.delayed - type.waiting + type.retrying;
const failedOf = (type: TypeInfo): number => type.failed - type.retrying + type.buried;

/** The part of a type's tasks that may fail before it needs attention: some always do. */
const USUAL = 0.05;

/** How many failed in the last hour, if that is more than usual. */
function lastFailed(work: TypeWork | undefined): number {
  const failed = (work?.ended.failed ?? 0) + (work?.ended.buried ?? 0);
  return failed > (failed + (work?.ended.completed ?? 0)) * USUAL ? failed : 0;
}

/** How urgent it is to look at a type: tasks that nobody runs, then what fails often, then what is paused; 0 if all is well. */
function urgency({ type, work }: Kind): number {
  if (readyOf(type) > 0 && !type.workers) return 3;
  if (lastFailed(work)) return 2;
  return type.paused ? 1 : 0;
}

const ORDERS: [string, string, (a: Kind, b: Kind) => number][] = [
  ["", "Needs attention first", (a, b) => urgency(b) - urgency(a)],
  ["name", "By name", () => 0],
  ["ready", "Most ready first", (a, b) => readyOf(b.type) - readyOf(a.type)],
  ["failed", "Most failed first", (a, b) => failedOf(b.type) - failedOf(a.type)],
];

/** What is alike stands by name. */
function sorted(kinds: Kind[], order: string): Kind[] {
  const compare = (ORDERS.find(([key]) => key === order) ?? ORDERS[0]!)[2];
  return [...kinds].sort((a, b) => compare(a, b) || byName(a.type.type, b.type.type));
}

function Counted({ kinds, found, total }: { kinds: Kind[]; found: number; total: number }) {
  const urgent = kinds.filter(urgency).length;
  return (
    <span class="soft">
      {found < kinds.length && `${count(found)} of `}
      {plural(total, "type")}
      {urgent > 0 && ` · ${count(urgent)} ${urgent === 1 ? "needs" : "need"} attention`}
      {total > kinds.length && ` · the first ${count(kinds.length)} by name are here`}
    </span>
  );
}

function Narrow({ search, order }: { search: string; order: string }) {
  return (
    <search class="range-bar">
      <label class="field grows">
        <span class="unseen">Search types</span>
        <input type="search" data-search placeholder="Search types   /" value={search} onInput={(event) => setQuery({ search: event.currentTarget.value || null }, true)} />
      </label>
      <OrderChoice order={order} orders={ORDERS} />
    </search>
  );
}

function NoTypes() {
  return (
    <Empty title="No types yet.">
      <p>A type appears when one of its tasks is submitted, or when a worker that knows it starts.</p>
    </Empty>
  );
}

interface RowProps {
  type: TypeInfo;
  control: Control | null;
  work: TypeWork | undefined;
  ask: (what: "pause" | "limits") => void;
  refresh: () => void;
}

function Row({ type, control, work, ask, refresh }: RowProps) {
  const paused = control?.pauses.some((pause) => pause.type === type.type) ?? false;
  const limit = control?.limits.find((each) => each.type === type.type);
  const keyed = control?.keyLimits.filter((each) => each.type === type.type) ?? [];
  const ready = readyOf(type);
  const failing = lastFailed(work);
  const limited = Boolean(limit?.tasksPerSecond || limit?.maxRunning || keyed.length);
  const later = [type.delayed && `+${short(type.delayed)} delayed`, type.waiting && `+${short(type.waiting)} waiting`];
  return (
    <tr data-row class="kind">
      <td>
        <a class="row-link" href={href("/tasks", { type: type.type })}>
          {type.type}
        </a>{" "}
        {paused && <span class="badge retrying">Paused</span>}
        {failing > 0 && <div class="hint late">{count(failing)} failed in the last hour</div>}
      </td>
      <Number name="Ready" value={ready} to={{ type: type.type, status: ["pending", "retrying"] }} beside={later.filter(Boolean).join(", ")} />
      <Number name="Running" value={type.processing} to={{ type: type.type, status: "processing" }} />
      <Number name="Completed" value={type.completed} to={{ type: type.type, status: "completed" }} />
      <Number name="Failed" value={failedOf(type)} to={{ type: type.type, status: ["failed", "buried"] }} bad />
      <Pair name={WAIT} durations={work?.wait} />
      <Pair name={RUN} durations={work?.run} />
      <td class={`number half ${ready && !type.workers ? "" : "nothing"}`} data-label="Workers">
        {type.workers ? type.workers : <span class={ready ? "late" : "soft"}>{ready ? "none" : "–"}</span>}
      </td>
      <td class={`limits half ${limited ? "" : "nothing"}`} data-label="Limits">
        {limit?.tasksPerSecond ? <span>{limit.tasksPerSecond}/s</span> : null}
        {limit?.maxRunning ? <span>{limit.maxRunning} at once</span> : null}
        {keyed.map(({ key, maxRunning }) => (
          <span key={key ?? ""}>
            {maxRunning || "unlimited"} of {key === null ? "a key" : `the key ${key}`}
          </span>
        ))}
        {!limited && <span class="soft">none</span>}
      </td>
      {can("operate") && (
        <td class="doing">
          <Button kind="small" onClick={() => ask("limits")} label={`Limits of ${type.type}`}>
            Limits
          </Button>
          {paused ? (
            <Button kind="small" onClick={() => void resume(type.type).then(refresh)} label={`Resume ${type.type}`}>
              Resume
            </Button>
          ) : (
            <Button kind="small" onClick={() => ask("pause")} label={`Pause ${type.type}`}>
              Pause
            </Button>
          )}
        </td>
      )}
    </tr>
  );
}

function Pair({ name, durations }: { name: string; durations: TypeWork["wait"] | undefined }) {
  const known = durations && durations.p50 !== null && durations.p95 !== null;
  return (
    <td class={`number half ${known ? "" : "nothing"}`} data-label={name}>
      {known ? `${span(durations.p50!)} · ${span(durations.p95!)}` : <span class="soft">–</span>}
    </td>
  );
}

interface NumberProps {
  name: string;
  value: number;
  to: Record<string, string | string[]>;
  beside?: string;
  bad?: boolean;
}

function Number({ name, value, to, beside, bad }: NumberProps) {
  return (
    <td class={`number ${value || beside ? "" : "nothing"}`} data-label={name}>
      {value ? (
        <a class={bad ? "late" : undefined} href={href("/tasks", to)}>
          {short(value)}
        </a>
      ) : (
        <span class="soft">0</span>
      )}
      {beside && <div class="hint">{beside}</div>}
    </td>
  );
}
