/** A new task, from nothing or from one that was there before. */

import { signal } from "@preact/signals";
import { resubmit, submit } from "../actions";
import { parse } from "../api/exact";
import type { CreateTask, TaskDetail } from "../api/client";
import { stats } from "../live";
import { go, href } from "../router";
import { FormDialog } from "./dialog";

const STARS = "**********";
const open = signal<{ like?: TaskDetail } | null>(null);

export function openSubmit(like?: TaskDetail): void {
  open.value = like ? { like } : {};
}

export function SubmitDialog() {
  return open.value && <Form like={open.value.like} />;
}

function Form({ like }: { like: TaskDetail | undefined }) {
  const close = () => (open.value = null);
  const send = async (form: FormData) => {
    const id = like ? await again(like, form) : await submit(read(form));
    go(href(`/tasks/${id}`));
  };
  return (
    <FormDialog title={like ? `Duplicate ${like.type}` : "New task"} verb="Submit" onClose={close} send={send} wide>
      {like ? <Again like={like} /> : <Fresh />}
    </FormDialog>
  );
}

/** The payload and what decides when it runs; everything else stays as it was. */
function Again({ like }: { like: TaskDetail }) {
  return (
    <>
      <Payload value={like.payload} />
      {JSON.stringify(like.payload)?.includes(STARS) && (
        <p class="soft">
          <code>{STARS}</code> stands for a secret: left as it is, the new task gets the stored value.
        </p>
      )}
      <label class="field stacked">
        Priority
        <input name="priority" type="number" step="1" required defaultValue={String(like.priority)} />
      </label>
    </>
  );
}

function Fresh() {
  return (
    <>
      <label class="field stacked">
        Type
        <input name="type" required maxLength={255} list="known-types" autoComplete="off" />
      </label>
      <datalist id="known-types">
        {Object.keys(stats.value?.byType ?? {}).map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <Payload value={{}} />
      <div class="form-grid">
        <label class="field stacked">
          Priority
          <input name="priority" type="number" step="1" defaultValue="0" />
        </label>
        <label class="field stacked">
          Max. attempts
          <input name="maxAttempts" type="number" min="1" step="1" placeholder="the type’s default" />
        </label>
        <label class="field stacked">
          Not before
          <input name="runAfter" type="datetime-local" />
        </label>
        <label class="field stacked">
          Time limit, seconds
          <input name="timeoutSeconds" type="number" min="0.001" step="any" placeholder="the type’s default" />
        </label>
        <label class="field stacked">
          Tags (JSON)
          <input name="tags" spellcheck={false} defaultValue="{}" />
        </label>
        <label class="field stacked">
          Concurrency key
          <input name="concurrencyKey" maxLength={500} />
        </label>
      </div>
    </>
  );
}

function Payload({ value }: { value: unknown }) {
  return (
    <label class="field stacked">
      Payload (JSON)
      <textarea name="payload" rows={10} spellcheck={false} defaultValue={JSON.stringify(value ?? {}, null, 2)} />
    </label>
  );
}

function again(like: TaskDetail, form: FormData): Promise<string> {
  const payload = json((form.get("payload") as string).trim() || "null", "Payload");
  return resubmit(like.id, payload, Number(form.get("priority")));
}

/** The request that the fields mean; text that is no JSON is an error that says where. */
function read(form: FormData): CreateTask {
  const text = (name: string) => (form.get(name) as string).trim();
  const number = (name: string) => (text(name) ? { [name]: Number(text(name)) } : {});
  const tags = json(text("tags") || "{}", "Tags") as Record<string, unknown>;
  return {
    type: text("type"),
    payload: json(text("payload") || "null", "Payload"),
    options: {
      onConflict: "return",
      ...number("priority"),
      ...number("maxAttempts"),
      ...number("timeoutSeconds"),
      ...(text("runAfter") ? { runAfter: new Date(text("runAfter")).toISOString() } : {}),
      ...(Object.keys(tags).length ? { tags } : {}),
      ...(text("concurrencyKey") ? { concurrencyKey: text("concurrencyKey") } : {}),
    },
  };
}

function json(text: string, what: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    throw new Error(`${what}: ${(error as Error).message}`);
  }
}
