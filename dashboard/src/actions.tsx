/** What a person can do to tasks: one, some, or all that match; with a question first where something would be lost. */

import { BY_DEFAULT, POSSIBLE } from "./api/actions";
import { type Action, api, type BulkFilter, Problem, take, type Task } from "./api/client";
import { absolute, plural, shortId, span, verb } from "./format";
import { acted, restart } from "./live";
import { href } from "./router";
import { attempt, say, sayUndoable } from "./toasts";
import type { Shown } from "./ui/basic";
import { confirm, type Counted } from "./ui/dialog";

type StatusFilter = NonNullable<BulkFilter["status"]>[number];

/** What can be done to many at once: whatever can be done to one, but what went well is not run again. */
const inBulk = (action: Action): StatusFilter[] => POSSIBLE[action].filter((status) => action !== "retry" || status !== "completed");
export const ACTIONS: Action[] = ["retry", "cancel", "prioritize", "delete"];
export const VERBS: Record<Action, string> = { retry: "Retry", cancel: "Cancel", prioritize: "Prioritize", delete: "Delete" };
const DONE: Record<Action, string> = { retry: "requeued", cancel: "cancelled", prioritize: "prioritized", delete: "deleted" };
const DANGEROUS: Action[] = ["cancel", "delete"];

export function isPossible(action: Action, status: Shown): boolean {
  return POSSIBLE[action].includes(status);
}

/** Whether tasks of these statuses, or of any if none is named, can be acted on together. */
export function isPossibleInBulk(action: Action, statuses: readonly string[]): boolean {
  return !statuses.length || inBulk(action).some((status) => statuses.includes(status));
}

/** News of our own doing: everything on the page reads again. */
export function changed(): void {
  acted.value++;
}

export function act(action: Action, task: Pick<Task, "id" | "type" | "priority">, shown: Shown, after?: () => void): void {
  const name = `${task.type} ${shortId(task.id)}`;
  const work = async (form?: FormData) => {
    await send(action, task.id, shown, form);
    changed();
    const asked = action === "cancel" && shown === "processing";
    const takeBack = action === "cancel" && !asked && shown !== "delayed";
    if (takeBack) sayUndoable(`${name} was cancelled.`, () => send("retry", task.id, "cancelled").then(changed));
    else say(asked ? `${name} was asked to stop.` : `${name} was ${DONE[action]}.`);
    after?.();
  };
  if (action === "retry" && shown !== "completed") void attempt(work);
  else
    confirm({
      title: `${VERBS[action]} 1 task?`,
      verb: `${VERBS[action]} 1 task`,
      danger: DANGEROUS.includes(action),
      text: warning(action, name, shown),
      fields: action === "prioritize" && <Priority now={task.priority} />,
      work,
    });
}

function send(action: Action, id: string, shown: Shown, form?: FormData): Promise<unknown> {
  const params = { path: { task_id: id } };
  switch (action) {
    case "retry":
      return take(api.POST("/api/tasks/{task_id}/retry", { params: { ...params, query: { force: shown === "completed" } } }));
    case "cancel":
      return take(api.POST("/api/tasks/{task_id}/cancel", { params }));
    case "prioritize":
      return take(api.POST("/api/tasks/{task_id}/priority", { params, body: { priority: priorityOf(form) } }));
    case "delete":
      return take(api.DELETE("/api/tasks/{task_id}", { params }));
  }
}

function Priority({ now }: { now?: number }) {
  return (
    <label class="field stacked">
      Priority (higher runs first)
      <input name="priority" type="number" step="1" required autofocus defaultValue={String(now ?? 0)} />
    </label>
  );
}

/** Each task gets a due time of its own: nobody has to keep the page open. */
export function Rate() {
  return (
    <label class="field stacked">
      Max. tasks per second (empty: all at once)
      <input name="rate" type="number" min="0.001" step="any" placeholder="all at once" />
    </label>
  );
}

const priorityOf = (form?: FormData): number => Number(form?.get("priority"));

function warning(action: Action, name: string, shown: Shown): Counted {
  const texts: Record<Action, string> = {
    retry: `${name} has completed. It will run again, from its first attempt.`,
    cancel:
      shown === "processing"
        ? `${name} is running. Its worker is asked to stop it; if it completes first, it stays completed.`
        : `${name} will not run. It can be retried later.`,
    prioritize:
      shown === "processing"
        ? `${name} is running. The priority applies from its next attempt on.`
        : `${name} runs before tasks with a lower priority.`,
    delete: `${name} is deleted, with its result and history.`,
  };
  return { body: <p>{texts[action]}</p> };
}

/** Act on every task that matches; how many that is, is counted and shown first. */
export function actOnMatching(action: Action, filter: BulkFilter, what: string, after?: () => void): void {
  // Tasks that were selected one by one are meant whatever their status; a filter without one means the default.
  const wanted = filter.status?.length ? filter.status : filter.ids ? inBulk(action) : BY_DEFAULT[action];
  const status = wanted.filter((each) => inBulk(action).includes(each));
  const post = (dryRun: boolean, priority: number, rate = 0) => {
    const only = action === "prioritize" ? { priority } : action === "retry" && rate > 0 ? { rate } : {};
    return take(api.POST("/api/tasks/bulk", { body: { action, filter: { ...filter, status }, dryRun, ...only } }));
  };
  confirm({
    title: `${VERBS[action]} tasks?`,
    verb: VERBS[action],
    danger: DANGEROUS.includes(action),
    text: status.length ? counted(action, what, status, post(true, 0)) : none(action, inBulk(action)),
    fields: action === "prioritize" ? <Priority /> : action === "retry" && <Rate />,
    work: async (form) => {
      const rate = Number(form?.get("rate"));
      try {
        const answer = await post(false, priorityOf(form), rate);
        const done = `${plural(answer.changed, "task")} ${verb(answer.changed, "was", "were")} ${DONE[action]}`;
        say(rate > 0 && action === "retry" ? `${done}; the last is due in ${span((answer.changed - 1) / rate)}.` : `${done}.`);
      } finally {
        // What is refused half-way has changed some of them.
        changed();
      }
      after?.();
    },
  });
}

async function counted(action: Action, what: string, status: StatusFilter[], dry: Promise<{ changed: number }>): Promise<Counted> {
  const { changed: number } = await dry;
  if (!number) return none(action, status);
  const loss: Record<Action, string> = {
    retry: `${verb(number, "runs", "run")} again from the first attempt`,
    cancel: "will not run",
    prioritize: `${verb(number, "gets", "get")} this priority`,
    delete: `${verb(number, "is", "are")} removed for good`,
  };
  return {
    body: (
      <p>
        <strong class="big">{plural(number, "task")}</strong> {what} {loss[action]}.
      </p>
    ),
  };
}

function none(action: Action, status: StatusFilter[]): Counted {
  const done = { retry: "retried", cancel: "cancelled", prioritize: "prioritized", delete: "deleted" }[action];
  const more = inBulk(action).some((each) => !status.includes(each)) && " Filter by status to mean others.";
  return {
    body: (
      <p>
        None of them can be {done}: that takes tasks that are {status.join(", ")}.{more}
      </p>
    ),
    nothing: true,
  };
}

/** Remove what ended before a moment. */
export function cleanUp(olderThan: Date, statuses: ("completed" | "failed" | "cancelled" | "buried")[]): void {
  const query = (dryRun: boolean) => ({ olderThan: olderThan.toISOString(), status: statuses, dryRun });
  const ask = (dryRun: boolean) => take(api.DELETE("/api/tasks", { params: { query: query(dryRun) } }));
  const text = async (): Promise<Counted> => {
    const { deleted } = await ask(true);
    if (!deleted) return { body: <p>No task is that old: there is nothing to remove.</p>, nothing: true };
    return {
      body: (
        <p>
          <strong class="big">{plural(deleted, "task")}</strong> ({statuses.join(", ")}) that ended before{" "}
          {absolute(olderThan.toISOString())} {verb(deleted, "is", "are")} removed for good.
        </p>
      ),
    };
  };
  confirm({
    title: "Clean up old tasks?",
    verb: "Delete them",
    danger: true,
    text: text(),
    work: () =>
      attempt(async () => {
        const { deleted } = await ask(false);
        say(`${plural(deleted, "task")} removed.`);
        changed();
      }),
  });
}

export async function pause(type: string | null, reason?: string): Promise<void> {
  const body = { ...(type ? { type } : {}), ...(reason ? { reason } : {}) };
  const done = await attempt(() => take(api.POST("/api/tasks/pause", { body })));
  if (done) sayUndoable(`${type ?? "Everything"} is paused; running tasks finish.`, () => resume(type));
  changed();
  restart();
}

export async function resume(type: string | null): Promise<void> {
  const done = await attempt(() => take(api.POST("/api/tasks/resume", { body: type ? { type } : {} })));
  if (done) sayUndoable(`${type ?? "Everything"} is resumed.`, () => pause(type));
  changed();
  restart();
}

export async function setRate(tasksPerSecond: number, type: string | null): Promise<boolean> {
  const body = { tasksPerSecond, ...(type ? { type } : {}) };
  const text = tasksPerSecond ? `At most ${plural(tasksPerSecond, "start")} per second.` : "The rate is unlimited.";
  const done = await attempt(() => take(api.POST("/api/tasks/rate-limit", { body })), text);
  changed();
  return done;
}

export async function setConcurrency(maxRunning: number, type: string | null): Promise<boolean> {
  const body = { maxRunning, ...(type ? { type } : {}) };
  const text = maxRunning ? `At most ${plural(maxRunning, "task")} run at once.` : "Concurrency is unlimited.";
  const done = await attempt(() => take(api.POST("/api/tasks/concurrency-limit", { body })), text);
  changed();
  return done;
}

/** How many tasks of each concurrency key run at once; null: one, as where nothing is set. */
export async function setKeyLimit(maxRunning: number | null, type: string | null): Promise<boolean> {
  const body = { maxRunning, ...(type ? { type } : {}) };
  const text = maxRunning === 0 ? "Tasks per key are unlimited." : `At most ${plural(maxRunning ?? 1, "task")} per key run at once.`;
  const done = await attempt(() => take(api.POST("/api/tasks/key-limit", { body })), text);
  changed();
  return done;
}

/** Store a task and say so with a link to it; a problem is thrown for the form to show. */
export async function submit(body: Parameters<typeof create>[0]): Promise<string> {
  const created = await create(body);
  if (!("id" in created)) throw new Problem(500, "the service answered with a schedule");
  say(`${created.type} was submitted.`, { text: "Open it", to: href(`/tasks/${created.id}`) });
  changed();
  return created.id;
}

/** Store a task like another, with another payload; secrets that are shown as stars keep their stored value. */
export async function resubmit(id: string, payload: unknown, priority: number): Promise<string> {
  const params = { path: { task_id: id } };
  const created = await take(api.POST("/api/tasks/{task_id}/resubmit", { params, body: { payload, priority } }));
  say(`${created.type} was duplicated.`);
  changed();
  return created.id;
}

function create(body: import("./api/client").CreateTask) {
  return take(api.POST("/api/tasks", { body }));
}
