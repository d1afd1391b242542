import { Client, ServiceError, backoff, isTemporary, rest, type ClientOptions } from "./client.js";
import { NonRetryable, RetryLater, Snooze } from "./errors.js";
import type { components } from "./schema.js";
import { StepFailed, Suspended, Workflow, isLost } from "./workflow.js";

type Schemas = components["schemas"];

/** A task to work on. */
export type ClaimedTask = Schemas["ClaimedTask"];
/** Why a handler is asked to end. */
export type StopReason = "cancelled" | "timed out" | "lost" | "stopping";

export type LogLevel = Schemas["LineInput"]["level"];

export interface Context {
  readonly task: ClaimedTask;
  /** Aborted when the work should end; `signal.reason` is a StopReason. Give it to `fetch` and the like. */
  readonly signal: AbortSignal;
  /** Say how far the work is, from 0 to 1. */
  progress(fraction: number, message?: string): Promise<void>;
  /** Keep a line on the task, without its secrets; the latest 200 are shown with it. */
  log(text: string, level?: LogLevel): Promise<void>;
  /** Steps that are remembered, waits that hold nothing, children: the handler runs from the top when it goes on. */
  readonly workflow: Workflow;
}

/** Does the work; what it returns, as JSON, is the task's result. */
export type Handler = (payload: any, context: Context) => unknown;

export interface WorkerOptions extends ClientOptions {
  /** What to do for each type of task. */
  handlers: Record<string, Handler>;
  /** Tasks that run at once. */
  concurrency?: number;
  workerId?: string;
  host?: string;
  /** How long a claim waits for a task; a stop does not wait for it. */
  waitSeconds?: number;
  /** How long running tasks may go on after `stop`. */
  graceSeconds?: number;
  /** Without a heartbeat for so long the service takes the worker for dead. */
  timeoutSeconds?: number;
  log?: (line: string) => void;
}

interface Running {
  readonly task: ClaimedTask;
  readonly controller: AbortController;
  readonly done: Promise<void>;
}

/** How long a handler may take to end after it was asked to. */
const UNWIND_SECONDS = 5;
/** As much of a line as the service takes; it keeps less. */
const LINE_CHARACTERS = 50_000;

/**
 * Claims tasks over HTTP and runs them, until stopped.
 *
 * Every ending is sent with the task's fencing token until the service has answered; one that comes too late is refused
 * with 409 and changes nothing. A worker that cannot reach the service stops its handlers before others take over.
 */
export class Worker {
  readonly #client: Client;
  readonly #options: WorkerOptions;
  readonly #running = new Map<string, Running>();
  readonly #stopping = new AbortController();
  readonly #now = new AbortController();
  #me: Schemas["Registered"] | undefined;
  #lastBeat = 0;
  #roomFree: (() => void) | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#client = new Client(options);
  }

  /** Work until `stop` is called and running tasks have ended. */
  async run(): Promise<void> {
    const beating = this.#keepBeating();
    try {
      await this.#register();
      while (!this.#stopping.signal.aborted) {
        await this.#untilRoom();
        for (const task of await this.#claim()) this.#start(task);
      }
      await this.#drain();
    } finally {
      this.#now.abort();
      await beating;
      await this.#signOff();
    }
  }

  /** Claim nothing more, and let running tasks finish within the grace; called again, end them now. */
  stop(): void {
    if (this.#stopping.signal.aborted) this.#now.abort();
    this.#stopping.abort();
    this.#roomFree?.();
  }

  async #register(): Promise<void> {
    const { handlers, concurrency = 1, workerId, host = "node", timeoutSeconds } = this.#options;
    const body = {
      workerId: workerId ?? `js-${crypto.randomUUID().slice(0, 8)}`,
      types: Object.keys(handlers),
      concurrency,
      host,
      ...(timeoutSeconds === undefined ? {} : { timeoutSeconds }),
    };
    const me = await this.#insist<Schemas["Registered"]>("/api/workers", body, this.#stopping.signal);
    if (me !== undefined) {
      this.#me = me;
      this.#lastBeat = performance.now();
    }
  }

  async #claim(): Promise<ClaimedTask[]> {
    const me = this.#me;
    if (me === undefined) {
      await this.#register();
      return [];
    }
    const { concurrency = 1, waitSeconds = 20 } = this.#options;
    const body = { limit: Math.min(100, concurrency - this.#running.size), waitSeconds: Math.min(30, waitSeconds) };
    try {
      const found = await this.#client.send<Schemas["ClaimedTasks"]>("POST", `/api/workers/${me.instance}/claim`, body, {
        signal: this.#stopping.signal,
      });
      return found.tasks;
    } catch (error) {
      if (this.#stopping.signal.aborted) return []; // what it may have claimed is given back when signing off
      this.#log(`claim: ${error}`);
      if (isUnknownWorker(error)) this.#declaredDead(me);
      else await this.#recoverClaim();
      return [];
    }
  }

  /** The answer to a claim was lost: release what the service says we hold, and we do not know of. */
  async #recoverClaim(): Promise<void> {
    for (let attempt = 0; !this.#stopping.signal.aborted && this.#me !== undefined; attempt++) {
      await rest(backoff(attempt), this.#stopping.signal);
      const held = await this.#beat();
      if (held === undefined) continue;
      for (const { id, version } of held) {
        if (this.#running.get(id)?.task.version === version) continue;
        await this.#insist(`/api/tasks/${id}/release`, { version }, this.#stopping.signal).catch((e) => this.#log(`${e}`));
      }
      return;
    }
  }

  #start(task: ClaimedTask): void {
    const controller = new AbortController();
    const done = this.#work(task, controller).finally(() => {
      if (this.#running.get(task.id)?.controller === controller) this.#running.delete(task.id);
      this.#roomFree?.();
    });
    this.#running.set(task.id, { task, controller, done });
  }

  async #work(task: ClaimedTask, controller: AbortController): Promise<void> {
    const timer =
      task.timeoutSeconds == null
        ? undefined
        : setTimeout(() => controller.abort("timed out" satisfies StopReason), task.timeoutSeconds * 1000);
    const context: Context = {
      task,
      signal: controller.signal,
      workflow: new Workflow(this.#client, task, controller.signal),
      progress: async (progress, message) => {
        const body = { version: task.version, progress, ...(message === undefined ? {} : { message }) };
        await this.#client.send("POST", `/api/tasks/${task.id}/progress`, body).catch((e) => this.#log(`progress: ${e}`));
      },
      log: async (text, level = "INFO") => {
        const body = { version: task.version, lines: [{ level, text: text.slice(0, LINE_CHARACTERS) }] };
        await this.#client.send("POST", `/api/tasks/${task.id}/log`, body).catch((e) => this.#log(`log: ${e}`));
      },
    };
    const over = new AbortController();
    const ending = await Promise.race([this.#outcome(task, context), this.#abandoned(controller.signal, over.signal)]);
    over.abort();
    clearTimeout(timer);
    if (ending !== undefined) await this.#finish(task, ...ending);
  }

  async #outcome(task: ClaimedTask, context: Context): Promise<Ending> {
    const handler = this.#options.handlers[task.type];
    try {
      if (handler === undefined) throw new NonRetryable(`this worker has no handler for ${task.type}`);
      const result = await handler(task.payload, context);
      return stopped(context.signal) ?? ["complete", { result: result === undefined ? null : result }];
    } catch (error) {
      if (error instanceof Suspended || isLost(error)) return ["lost", {}]; // it has ended already
      return stopped(context.signal) ?? failure(error);
    }
  }

  /** The ending of a task whose handler does not react to its signal. */
  async #abandoned(signal: AbortSignal, over: AbortSignal): Promise<Ending | undefined> {
    await new Promise<void>((aborted) => signal.addEventListener("abort", () => aborted(), { once: true }));
    await rest(UNWIND_SECONDS, over);
    if (over.aborted) return undefined;
    this.#log("a handler does not end although its signal is aborted; it is waited for no longer");
    return stopped(signal);
  }

  async #finish(task: ClaimedTask, ending: string, said: Record<string, unknown>): Promise<void> {
    if (ending === "lost") return; // another worker has it, or will
    try {
      await this.#insist(`/api/tasks/${task.id}/${ending}`, { version: task.version, ...said }, this.#now.signal);
    } catch (error) {
      const status = error instanceof ServiceError ? error.status : 0;
      if (ending === "complete" && (status === 400 || status === 413)) {
        // A result that nobody can store.
        return this.#finish(task, "fail", { error: String(error), retry: false });
      }
      // 409 and 404 are normal: it timed out, was recovered or deleted, and this ending comes too late.
      this.#log(`${ending} of ${task.id}: ${error}`);
    }
  }

  async #keepBeating(): Promise<void> {
    while (!this.#now.signal.aborted) {
      const pause = this.#me === undefined ? 0.2 : this.#me.heartbeatSeconds * (0.8 + Math.random() * 0.2);
      await rest(pause, this.#now.signal);
      if (this.#me !== undefined && !this.#now.signal.aborted) await this.#beat();
    }
  }

  /** Send a heartbeat; what the service says we hold, or undefined if it did not answer. */
  async #beat(): Promise<Schemas["Held"][] | undefined> {
    const me = this.#me;
    if (me === undefined) return undefined;
    const asked = performance.now();
    const before = new Set(this.#running.keys());
    try {
      const path = `/api/workers/${me.instance}/heartbeat`;
      const signal = AbortSignal.timeout(me.timeoutSeconds * 1000);
      const { tasks } = await this.#client.send<Schemas["Beat"]>("POST", path, undefined, { signal });
      this.#lastBeat = Math.max(this.#lastBeat, asked);
      this.#compare(tasks, before);
      return tasks;
    } catch (error) {
      this.#log(`heartbeat: ${error}`);
      if (isUnknownWorker(error)) this.#declaredDead(me);
      else if (performance.now() - this.#lastBeat > me.timeoutSeconds * 900) this.#abortAll("lost");
      return undefined;
    }
  }

  /** Stop what a person has cancelled, and what is no longer ours. */
  #compare(held: Schemas["Held"][], before: Set<string>): void {
    const byId = new Map(held.map((each) => [each.id, each]));
    for (const [id, { task, controller }] of this.#running) {
      const stored = byId.get(id);
      if (stored?.cancelRequested && stored.version === task.version) controller.abort("cancelled" satisfies StopReason);
      else if (before.has(id) && stored?.version !== task.version) controller.abort("lost" satisfies StopReason);
    }
  }

  #declaredDead(me: Schemas["Registered"]): void {
    if (this.#me !== me) return;
    this.#log("this worker was declared dead; it registers again");
    this.#me = undefined;
    this.#abortAll("lost");
  }

  #abortAll(reason: StopReason): void {
    for (const { controller } of this.#running.values()) controller.abort(reason);
  }

  async #drain(): Promise<void> {
    const ended = Promise.all([...this.#running.values()].map((each) => each.done));
    await Promise.race([ended, rest(this.#options.graceSeconds ?? 30, this.#now.signal)]);
    this.#abortAll("stopping");
    await Promise.race([Promise.all([...this.#running.values()].map((each) => each.done)), rest(2 * UNWIND_SECONDS, this.#now.signal)]);
  }

  async #signOff(): Promise<void> {
    if (this.#me === undefined) return;
    const signal = AbortSignal.timeout(5000);
    await this.#client
      .send("DELETE", `/api/workers/${this.#me.instance}`, undefined, { signal })
      .catch((error) => this.#log(`signing off: ${error}`));
  }

  async #untilRoom(): Promise<void> {
    while (this.#running.size >= (this.#options.concurrency ?? 1) && !this.#stopping.signal.aborted) {
      await new Promise<void>((free) => (this.#roomFree = free));
    }
  }

  /** Send until there is an answer: repeating is harmless, because every ending is fenced. */
  async #insist<T>(path: string, body: unknown, until: AbortSignal): Promise<T | undefined> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#client.send<T>("POST", path, body);
      } catch (error) {
        if (!isTemporary(error)) throw error;
        this.#log(`${path}: ${error}`);
        if (until.aborted) return undefined;
        await rest(backoff(attempt), until);
      }
    }
  }

  #log(line: string): void {
    this.#options.log?.(line);
  }
}

type Ending = [ending: string, said: Record<string, unknown>];

function stopped(signal: AbortSignal): Ending | undefined {
  if (!signal.aborted) return undefined;
  switch (signal.reason as StopReason) {
    case "cancelled":
      return ["stopped", {}];
    case "stopping":
      return ["release", {}];
    case "timed out":
      return ["fail", { error: "TaskTimeout: the handler ran past the task's timeout" }];
    default:
      return ["lost", {}];
  }
}

function failure(error: unknown): Ending {
  if (error instanceof Snooze) return ["snooze", { delaySeconds: error.delaySeconds }];
  const text = error instanceof Error ? (error.stack ?? String(error)) : String(error);
  const said: Record<string, unknown> = { error: text.slice(0, 50_000) || "unknown error" };
  if (error instanceof NonRetryable) said["retry"] = false;
  if (error instanceof RetryLater) said["delaySeconds"] = error.delaySeconds;
  if (error instanceof StepFailed) {
    said["step"] = error.key; // the next attempt runs it again
    if (error.type === "WaitTimeout") said["retry"] = false;
  }
  return ["fail", said];
}

function isUnknownWorker(error: unknown): boolean {
  return error instanceof ServiceError && error.status === 404;
}
