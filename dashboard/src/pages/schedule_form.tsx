/** Making or changing a schedule. */

import { useState } from "preact/hooks";
import { parse } from "../api/exact";
import type { PutSchedule, Schedule } from "../api/client";
import { localTime } from "../format";
import { stats } from "../live";
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
    </FormDialog>
  );
}

/** By cron in a time zone, or every so many seconds. */
function Repeats({ like }: { like: Schedule | null }) {
  const [kind, setKind] = useState<"cron" | "every">(like?.every != null ? "every" : "cron");
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
            <input name="cron" required placeholder="0 9 * * mon-fri" maxLength={200} defaultValue={like?.cron ?? ""} />
          </label>
          <label class="field stacked">
            Time zone
            <input name="tz" required list="zones" maxLength={100} defaultValue={like?.tz ?? "UTC"} />
          </label>
          <datalist id="zones">
            {Intl.supportedValuesOf("timeZone").map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
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

/** What the fields mean; what they do not show is kept as it was. */
function read(form: FormData, like: Schedule | null): PutSchedule {
  const text = (name: string) => ((form.get(name) as string | null) ?? "").trim();
  let payload: unknown;
  try {
    payload = parse(text("payload") || "{}");
  } catch (error) {
    throw new Error(`Payload: ${(error as Error).message}`);
  }
  const moment = (name: "startsAt" | "endsAt") => {
    if (text(name) === localTime(like?.[name])) return like?.[name] ?? null;
    return text(name) ? new Date(text(name)).toISOString() : null;
  };
  return {
    type: text("type"),
    ...(form.has("every") ? { every: Number(text("every")) } : { cron: text("cron"), tz: text("tz") }),
    payload,
    misfire: text("misfire") as "one",
    overlap: text("overlap") as "allow",
    jitter: Number(text("jitter")),
    startsAt: moment("startsAt"),
    endsAt: moment("endsAt"),
    ...(like ? { options: optionsOf(like) } : {}),
  };
}

function optionsOf({ options }: Schedule): NonNullable<PutSchedule["options"]> {
  const known = options as Record<string, unknown>;
  return {
    ...(known.max_retries === undefined ? {} : { maxAttempts: Number(known.max_retries) + 1 }),
    ...(known.priority === undefined ? {} : { priority: Number(known.priority) }),
    ...(known.tags === undefined ? {} : { tags: known.tags as Record<string, unknown> }),
    ...(known.timeout_seconds === undefined ? {} : { timeoutSeconds: Number(known.timeout_seconds) }),
    ...(known.concurrency_key === undefined ? {} : { concurrencyKey: String(known.concurrency_key) }),
  };
}
