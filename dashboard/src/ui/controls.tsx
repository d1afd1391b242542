/** The switches over all workers: pause, resume, and how many tasks may start in a second. */

import { useState } from "preact/hooks";
import { pause, resume, setConcurrency, setRate } from "../actions";
import { api, take } from "../api/client";
import { snapshot } from "../live";
import { useResource } from "../resource";
import { can } from "../session";
import { Button, Loading, Trouble } from "./basic";
import { Dialog } from "./dialog";

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
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    const reason = new FormData(event.currentTarget as HTMLFormElement).get("reason") as string;
    void pause(type, reason.trim() || undefined).then(close);
  };
  return (
    <Dialog title={type ? `Pause ${type}?` : "Pause everything?"} onClose={close}>
      <form onSubmit={send}>
        <div class="dialog-body">
          <p>No worker starts {type ? `tasks of type ${type}` : "any task"} until it is resumed. Running tasks finish.</p>
          <label class="field stacked">
            Why (others will see it)
            <input name="reason" maxLength={500} autoComplete="off" />
          </label>
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="danger" type="submit">
            Pause
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

export function LimitDialog({ type, close }: AboutType) {
  const control = useResource(`limits of ${type ?? ""}`, (signal) => take(api.GET("/api/control", { signal })));
  const limit = control.data?.limits.find((each) => each.type === type);
  const send = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const [rate, running] = [Number(form.get("rate")), Number(form.get("running"))];
    const rated = rate === (limit?.tasksPerSecond ?? 0) || (await setRate(rate, type));
    const bounded = running === (limit?.maxRunning ?? 0) || (await setConcurrency(running, type));
    if (rated && bounded) close();
  };
  return (
    <Dialog title={type ? `Limits of ${type}` : "Limits over all tasks"} onClose={close}>
      {!control.data ? (
        control.problem ? <Trouble problem={control.problem} retry={control.refresh} /> : <Loading rows={3} />
      ) : (
      <form onSubmit={(event) => void send(event)}>
        <div class="dialog-body">
          <p class="soft">They hold over all workers at once, and from now on. 0 is unlimited.</p>
          <label class="field stacked">
            Tasks that may start in a second
            <input name="rate" type="number" min="0" step="any" required defaultValue={String(limit?.tasksPerSecond ?? 0)} />
          </label>
          <label class="field stacked">
            Tasks that may run at once
            <input name="running" type="number" min="0" step="1" required defaultValue={String(limit?.maxRunning ?? 0)} />
          </label>
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit">
            Save
          </Button>
        </footer>
      </form>
      )}
    </Dialog>
  );
}
