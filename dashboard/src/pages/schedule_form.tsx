/** Making or changing a schedule. */

import { useState } from "preact/hooks";
import { parse } from "../api/exact";
import { api, type PutSchedule, type Schedule, take } from "../api/client";
import { localTime, whenInWords, zoneOf } from "../format";
import { stats } from "../live";
import { useResource } from "../resource";
import { Choice } from "../ui/basic";
import { FormDialog } from "../ui/dialog";

interface Props {
  like: Schedule | null;
  close: () => void;
  save: (name: string, body: PutSchedule) => Promise<void>;
}

const MISFIRES: [string, string][] = [
  ["one", "run once"],
  ["skip", "are skipped"],
  ["all", "all run"],
];
const OVERLAPS: [string, string][] = [
  ["allow", "start the next too"],
  ["skip", "skip the next"],
];

export function ScheduleDialog({ like, close, save }: Props) {
  const send = (form: FormData) => save(like?.name ?? (form.get("name") as string).trim(), read(form, like));
  return (
    <FormDialog title={like ? `Edit ${like.name}` : "New schedule"} verb="Save" onClose={close} send={send} wide>
      <div class="form-grid">
        {!like && (
          <label class="field stacked">
            Name
            <input name="name" required maxLength={255} autoComplete="off" />
          </label>
        )}
        <label class="field stacked">
          Type of task
          <input name="type" required maxLength={255} list="schedule-types" defaultValue={like?.type ?? ""} autoComplete="off" />
        </label>
        <datalist id="schedule-types">
          {Object.keys(stats.value?.byType ?? {}).map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <Repeats like={like} />
        <label class="field stacked">
          Missed runs
          <Choice name="misfire" chosen={like?.misfire ?? "one"} options={MISFIRES} />
        </label>
        <label class="field stacked">
          While one still runs
          <Choice name="overlap" chosen={like?.overlap ?? "allow"} options={OVERLAPS} />
        </label>
        <label class="field stacked">
          Spread over, seconds
          <input name="jitter" type="number" min="0" step="any" defaultValue={String(like?.jitter ?? 0)} />
        </label>
        <label class="field stacked">
          Starts
          <input name="startsAt" type="datetime-local" step="any" defaultValue={localTime(like?.startsAt)} />
        </label>
        <label class="field stacked">
          Ends
          <input name="endsAt" type="datetime-local" step="any" defaultValue={localTime(like?.endsAt)} />
        </label>
      </div>
      <label class="field stacked">
        Payload (JSON)
        <textarea name="payload" rows={6} spellcheck={false} defaultValue={JSON.stringify(like?.payload ?? {}, null, 2)} />
      </label>
      <Options like={like} />
    </FormDialog>
  );
}

/** Options of each task that it submits; what is left empty is as the type declares it. */
function Options({ like }: { like: Schedule | null }) {
  const known = (like?.options ?? {}) as Record<string, unknown>;
  const text = (value: unknown) => (value === undefined || value === null ? "" : String(value));
  return (
    <details class="form-more" open={Object.keys(known).length > 0}>
      <summary>Options of each task</summary>
      <div class="form-grid">
        <label class="field stacked">
          Priority
          <input name="priority" type="number" step="1" defaultValue={text(known.priority)} />
        </label>
        <label class="field stacked">
          Attempts at most
          <input name="maxAttempts" type="number" min="1" step="1" defaultValue={known.max_retries === undefined ? "" : String(Number(known.max_retries) + 1)} />
        </label>
        <label class="field stacked">
          Time limit, seconds
          <input name="timeoutSeconds" type="number" min="0.001" step="any" defaultValue={text(known.timeout_seconds)} />
        </label>
        <label class="field stacked">
          Concurrency key
          <input name="concurrencyKey" maxLength={255} autoComplete="off" defaultValue={text(known.concurrency_key)} />
        </label>
        <label class="field stacked">
          Tags (JSON)
          <input name="tags" spellcheck={false} autoComplete="off" placeholder='{"team": "media"}' defaultValue={known.tags === undefined ? "" : JSON.stringify(known.tags)} />
        </label>
      </div>
    </details>
  );
}

/** By cron in a time zone, or every so many seconds. */
function Repeats({ like }: { like: Schedule | null }) {
  const [kind, setKind] = useState<"cron" | "every">(like?.every != null ? "every" : "cron");
  const [cron, setCron] = useState(like?.cron ?? "");
  const [tz, setTz] = useState(like?.tz ?? "UTC");
  return (
    <>
      <label class="field stacked">
        Repeats
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value as "cron" | "every")}>
          <option value="cron">by cron</option>
          <option value="every">at an interval, in seconds</option>
        </select>
      </label>
      {kind === "cron" ? (
        <>
          <label class="field stacked">
            Cron
            <input name="cron" required placeholder="0 9 * * mon-fri" maxLength={200} value={cron} onInput={(event) => setCron(event.currentTarget.value)} />
          </label>
          <label class="field stacked">
            Time zone
            <input name="tz" required list="zones" maxLength={100} value={tz} onInput={(event) => setTz(event.currentTarget.value)} />
          </label>
          <datalist id="zones">
            {Intl.supportedValuesOf("timeZone").map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
          <Told cron={cron.trim()} tz={tz.trim()} />
        </>
      ) : (
        <label class="field stacked">
          Seconds
          <input name="every" type="number" required min="0.1" step="any" defaultValue={String(like?.every ?? 60)} />
        </label>
      )}
    </>
  );
}

/** What is typed, in words, and when it would run; while it is no cron expression, nothing. */
function Told({ cron, tz }: { cron: string; tz: string }) {
  const whole = cron.startsWith("@") || cron.split(/\s+/).length > 4;
  const told = useResource(whole && tz ? `cron ${cron} ${tz}` : null, (signal) => take(api.GET("/api/cron", { params: { query: { cron, tz } }, signal }))).data;
  const [first] = told?.nextRuns ?? [];
  return (
    <p class="hint form-told" role="status">
      {told?.words && first ? `${told.words}, ${tz}. Next: ${told.nextRuns.slice(0, 3).map(whenInWords).join("; ")} ${zoneOf(first)}.` : "\u00a0"}
    </p>
  );
}

/** What the fields mean. */
function read(form: FormData, like: Schedule | null): PutSchedule {
  const text = (name: string) => ((form.get(name) as string | null) ?? "").trim();
  const moment = (name: "startsAt" | "endsAt") => {
    if (text(name) === localTime(like?.[name])) return like?.[name] ?? null;
    return text(name) ? new Date(text(name)).toISOString() : null;
  };
  return {
    type: text("type"),
    ...(form.has("every") ? { every: Number(text("every")) } : { cron: text("cron"), tz: text("tz") }),
    payload: parsed("Payload", text("payload") || "{}"),
    misfire: text("misfire") as "one",
    overlap: text("overlap") as "allow",
    jitter: Number(text("jitter")),
    startsAt: moment("startsAt"),
    endsAt: moment("endsAt"),
    options: optionsOf(text),
  };
}

function optionsOf(text: (name: string) => string): NonNullable<PutSchedule["options"]> {
  const number = (name: string) => (text(name) ? { [name]: Number(text(name)) } : {});
  return {
    ...number("priority"),
    ...number("maxAttempts"),
    ...number("timeoutSeconds"),
    ...(text("concurrencyKey") ? { concurrencyKey: text("concurrencyKey") } : {}),
    ...(text("tags") ? { tags: parsed("Tags", text("tags")) as Record<string, unknown> } : {}),
  };
}

function parsed(name: string, text: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    throw new Error(`${name}: ${(error as Error).message}`);
  }
}
