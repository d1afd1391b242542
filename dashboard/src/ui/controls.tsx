/** The switches over all workers: pause, resume, and how many tasks may start in a second. */

import { useState } from "preact/hooks";
import { pause, resume, setConcurrency, setKeyLimit, setRate } from "../actions";
import { api, take } from "../api/client";
import { snapshot } from "../live";
import { useResource } from "../resource";
import { can } from "../session";
import { Button, Loading } from "./basic";
import { FormDialog } from "./dialog";
import { Unread } from "./listed";

export function Controls() {
  const [asking, setAsking] = useState<"pause" | "limits" | null>(null);
  if (!can("operate")) return null;
  const paused = snapshot.value?.paused ?? false;
  return (
    <>
      <Button onClick={() => setAsking("limits")}>Limits</Button>
      {paused ? (
        <Button kind="primary" onClick={() => void resume(null)}>
          Resume
        </Button>
      ) : (
        <Button onClick={() => setAsking("pause")}>Pause</Button>
      )}
      {asking === "pause" && <PauseDialog type={null} close={() => setAsking(null)} />}
      {asking === "limits" && <LimitDialog type={null} close={() => setAsking(null)} />}
    </>
  );
}

interface AboutType {
  type: string | null;
  close: () => void;
}

export function PauseDialog({ type, close }: AboutType) {
  const send = (form: FormData) => pause(type, (form.get("reason") as string).trim() || undefined);
  return (
    <FormDialog title={type ? `Pause ${type}?` : "Pause everything?"} verb="Pause" danger onClose={close} send={send}>
      <p>No worker starts {type ? `tasks of type ${type}` : "any task"} until it is resumed. Running tasks finish.</p>
      <label class="field stacked">
        Why (others will see it)
        <input name="reason" maxLength={500} autoComplete="off" />
      </label>
    </FormDialog>
  );
}

export function LimitDialog({ type, close }: AboutType) {
  const control = useResource(`limits of ${type ?? ""}`, (signal) => take(api.GET("/api/control", { signal })));
  const limit = control.data?.limits.find((each) => each.type === type);
  const ofKey = control.data?.keyLimits.find((each) => each.key === null && each.type === type)?.maxRunning ?? null;
  const send = async (form: FormData) => {
    const [rate, running] = [Number(form.get("rate")), Number(form.get("running"))];
    const rated = rate === (limit?.tasksPerSecond ?? 0) || (await setRate(rate, type));
    const bounded = running === (limit?.maxRunning ?? 0) || (await setConcurrency(running, type));
    const wanted = form.get("key") === "" ? null : Number(form.get("key"));
    const keyed = wanted === ofKey || (await setKeyLimit(wanted, type));
    return rated && bounded && keyed;
  };
  const title = type ? `Limits of ${type}` : "Limits over all tasks";
  return (
    <FormDialog title={title} verb="Save" off={!control.data} onClose={close} send={send}>
      <Unread source={control} />
      {control.loading && <Loading rows={3} />}
      {control.data && (
        <>
          <p class="soft">Applies to all workers immediately. 0 means unlimited.</p>
          <label class="field stacked">
            Max. starts per second
            <input name="rate" type="number" min="0" step="any" required defaultValue={String(limit?.tasksPerSecond ?? 0)} />
          </label>
          <label class="field stacked">
            Max. running
            <input name="running" type="number" min="0" step="1" required defaultValue={String(limit?.maxRunning ?? 0)} />
          </label>
          <label class="field stacked">
            Max. running per concurrency key
            <input name="key" type="number" min="0" step="1" placeholder="not set: one" defaultValue={ofKey ?? ""} />
          </label>
        </>
      )}
    </FormDialog>
  );
}
