/** Types: how each kind of task is doing, who works on it, and what holds it back. */

import { useState } from "preact/hooks";
import { resume } from "../actions";
import { api, type Control, take, type TypeInfo } from "../api/client";
import { getTypesWork, type TypeWork } from "../api/metrics";
import { short, span } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Button, Empty, PageHead } from "../ui/basic";
import { LimitDialog, PauseDialog } from "../ui/controls";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";
import "../styles/types.css";

const COLUMNS = [
  "Type",
  { name: "Ready", number: true },
  { name: "Running", number: true },
  { name: "Completed", number: true },
  { name: "Failed", number: true },
  { name: "Waited p50 · p95", number: true, title: "Median and 95th percentile of the last hour" },
  { name: "Ran p50 · p95", number: true, title: "Median and 95th percentile of the last hour" },
  { name: "Workers", number: true },
  "Limits",
];

export function TypesPage() {
  const types = useResource("all types", (signal) => take(api.GET("/api/types", { signal })), { live: true });
  const control = useResource("control of types", (signal) => take(api.GET("/api/control", { signal })), { live: true });
  const work = useResource("work of types", (signal) => getTypesWork(3600, signal), { every: 15_000 });
  const known = types.data?.types ?? [];
  // All of a row at once: columns that find their width one after the other jump.
  const source = { ...types, loading: types.loading || control.loading || work.loading };
  const [asking, setAsking] = useState<{ what: "pause" | "limits"; type: string } | null>(null);
  const close = () => {
    setAsking(null);
    control.refresh();
    types.refresh();
  };
  return (
    <>
      <PageHead title="Types" />
      <Listed framed source={source} some={known.length > 0} empty={<NoTypes />}>
        <Table label="Types" columns={COLUMNS} acts={can("operate")} framed>
          {known.map((type) => (
            <Row
              key={type.type}
              type={type}
              control={control.data}
              work={work.data?.find((each) => each.type === type.type)}
              ask={(what) => setAsking({ what, type: type.type })}
              refresh={close}
            />
          ))}
        </Table>
      </Listed>
      {asking?.what === "pause" && <PauseDialog type={asking.type} close={close} />}
      {asking?.what === "limits" && <LimitDialog type={asking.type} close={close} />}
    </>
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
  const ready = type.pending - type.delayed - type.waiting + type.retrying;
  const later = [type.delayed && `+${short(type.delayed)} delayed`, type.waiting && `+${short(type.waiting)} waiting`];
  return (
    <tr data-row>
      <td>
        <a class="row-link" href={href("/tasks", { type: type.type })}>
          {type.type}
        </a>{" "}
        {paused && <span class="badge retrying">Paused</span>}
      </td>
      <Number name="Ready" value={ready} to={{ type: type.type, status: ["pending", "retrying"] }} beside={later.filter(Boolean).join(", ")} />
      <Number name="Running" value={type.processing} to={{ type: type.type, status: "processing" }} />
      <Number name="Completed" value={type.completed} to={{ type: type.type, status: "completed" }} />
      <Number name="Failed" value={type.failed - type.retrying + type.buried} to={{ type: type.type, status: ["failed", "buried"] }} bad />
      <td class="number half" data-label="Waited p50 · p95">{pair(work?.wait)}</td>
      <td class="number half" data-label="Ran p50 · p95">{pair(work?.run)}</td>
      <td class="number half" data-label="Workers">
        {type.workers ? type.workers : <span class={ready ? "late" : "soft"}>{ready ? "nobody" : "–"}</span>}
      </td>
      <td class="limits half" data-label="Limits">
        {limit?.tasksPerSecond ? <span>{limit.tasksPerSecond}/s</span> : null}
        {limit?.maxRunning ? <span>{limit.maxRunning} at once</span> : null}
        {keyed.map(({ key, maxRunning }) => (
          <span key={key ?? ""}>
            {maxRunning || "unlimited"} of {key === null ? "a key" : `the key ${key}`}
          </span>
        ))}
        {!limit?.tasksPerSecond && !limit?.maxRunning && !keyed.length && <span class="soft">none</span>}
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

function pair(durations: { p50: number | null; p95: number | null } | undefined) {
  if (!durations || durations.p50 === null || durations.p95 === null) return <span class="soft">–</span>;
  return `${span(durations.p50)} · ${span(durations.p95)}`;
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
    <td class="number" data-label={name}>
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
