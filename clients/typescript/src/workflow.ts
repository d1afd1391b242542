import { ServiceError, backoff, isTemporary, rest, type Client } from "./client.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];
type ClaimedTask = Schemas["ClaimedTask"];

/** A recorded step. */
export type RecordedStep = Schemas["RecordedStep"];
/** A child with what became of it. */
export type Child = Schemas["Child"];

/** Thrown through a handler that waits: let it pass. The task is claimed again when it can go on. */
export class Suspended extends Error {
  override name = "Suspended";
}

/** Thrown where the code asks for another kind of step than was recorded: let it pass. The task is parked for other code. */
export class NonDeterminism extends Suspended {
  override name = "NonDeterminism";

  constructor(
    readonly key: string,
    message: string,
  ) {
    super(message);
  }
}

/** A step that failed, or a wait that gave up: `type` is `WaitTimeout` then. */
export class StepFailed extends Error {
  override name = "StepFailed";

  constructor(
    readonly key: string,
    readonly type: string,
    message: string,
  ) {
    super(`step ${key} failed: ${type}: ${message}`);
  }
}

const CHUNK = 1000;

/** What one attempt of a workflow records: the handler runs from the top each time, and a recorded step is not repeated. */
export class Workflow {
  readonly #client: Client;
  readonly #task: ClaimedTask;
  readonly #signal: AbortSignal;
  #steps: Promise<Map<string, RecordedStep>> | undefined;

  constructor(client: Client, task: ClaimedTask, signal: AbortSignal) {
    this.#client = client;
    this.#task = task;
    this.#signal = signal;
  }

  /** What the function returned, as JSON; run once under this key, then remembered. */
  async step<T>(key: string, run: () => T | Promise<T>): Promise<T> {
    const found = await this.#find(key, "step");
    if (found !== undefined && found.state !== "open") return valueOf(found) as T;
    const started = performance.now();
    let said: Record<string, unknown>;
    try {
      const value = await run();
      said = { value: value === undefined ? null : value };
    } catch (error) {
      if (this.#signal.aborted) throw error;
      const [type, message] = error instanceof Error ? [error.name, error.message] : ["Error", String(error)];
      said = { error: { type, message } };
    }
    const stored = await this.#send<RecordedStep>("steps", { key, seconds: (performance.now() - started) / 1000, ...said });
    return valueOf(stored) as T;
  }

  /** Wait until a moment without holding the task. */
  async sleep(key: string, until: Date): Promise<void> {
    await this.#suspend(key, "sleep", { until: until.toISOString() });
  }

  /** What the first of these events carries; a StepFailed with the type WaitTimeout if none has come until then. */
  async wait<T = unknown>(key: string, events: string[], until?: Date): Promise<T> {
    return (await this.#suspend(key, "wait", { events, ...(until ? { until: until.toISOString() } : {}) })) as T;
  }

  /** What a person answers; the answer fits the JSON Schema. */
  async ask<T = unknown>(key: string, question: string, answerSchema: object = {}, until?: Date): Promise<T> {
    return (await this.#suspend(key, "ask", { ask: question, answerSchema, ...(until ? { until: until.toISOString() } : {}) })) as T;
  }

  /** Run a task for each payload and wait for all; what became of them, in the order of the payloads. */
  async children(key: string, type: string, payloads: unknown[], maxFailures: number | null = null): Promise<Child[]> {
    const found = await this.#find(key, "map");
    if (found === undefined || found.state === "open") {
      for (let before = 0; before === 0 || before < payloads.length; before += CHUNK) {
        const sealed = before + CHUNK >= payloads.length;
        await this.#send("children", { key, type, payloads: payloads.slice(before, before + CHUNK), before, sealed, maxFailures });
      }
    }
    await this.#suspend(key, "map", { group: true });
    const children: Child[] = [];
    let next: string | null = `${this.#path()}/children/${encodeURIComponent(key)}?version=${this.#task.version}`;
    while (next) {
      const page: Schemas["ChildPage"] = await this.#insist("GET", next);
      children.push(...page.children);
      next = page.next;
    }
    return children;
  }

  async #suspend(key: string, kind: string, what: object): Promise<unknown> {
    const found = await this.#find(key, kind);
    if (found !== undefined && found.state !== "open") return valueOf(found);
    const answer = await this.#send<RecordedStep | Schemas["Suspended"]>("suspend", { key, ...what });
    if (!("state" in answer)) throw new Suspended();
    return valueOf(answer);
  }

  /** What is recorded under the key; where that is of another kind, the task is parked. */
  async #find(key: string, kind: string): Promise<RecordedStep | undefined> {
    const found = (await this.#recorded()).get(key);
    if (found === undefined || found.kind === kind) return found;
    const remedy = "give the changed step another name, or bring the old code back";
    return this.#park(key, `step ${key} was recorded as a ${found.kind}, and the code now asks for a ${kind}; ${remedy}`);
  }

  async #park(key: string, mismatch: string): Promise<never> {
    await this.#insist("POST", `${this.#path()}/suspend`, { version: this.#task.version, key, mismatch });
    throw new NonDeterminism(key, mismatch);
  }

  /** What is recorded; more than fits into a claim is read page by page. */
  #recorded(): Promise<Map<string, RecordedStep>> {
    return (this.#steps ??= this.#load());
  }

  async #load(): Promise<Map<string, RecordedStep>> {
    const steps = [...(this.#task.steps ?? [])];
    let next = this.#task.stepsUrl ?? null;
    while (next) {
      const page: Schemas["RecordedSteps"] = await this.#insist("GET", next);
      steps.push(...page.steps);
      next = page.next;
    }
    return new Map(steps.map((step) => [step.key, step]));
  }

  #path(): string {
    return `/api/tasks/${this.#task.id}`;
  }

  async #send<T>(what: string, body: { key: string; [name: string]: unknown }): Promise<T> {
    try {
      return await this.#insist<T>("POST", `${this.#path()}/${what}`, { version: this.#task.version, ...body });
    } catch (error) {
      if (error instanceof ServiceError && error.type.endsWith("step-mismatch")) return this.#park(body.key, error.message);
      throw error;
    }
  }

  /** Send until there is an answer: repeating is harmless, because the first one counts. */
  async #insist<T>(method: string, path: string, body?: unknown): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#client.send<T>(method, path, body);
      } catch (error) {
        if (!isTemporary(error) || this.#signal.aborted) throw error;
        await rest(backoff(attempt), this.#signal);
      }
    }
  }
}

/** Whether the claim is lost: another worker has the task, and whatever this one says about it is refused. */
export function isLost(error: unknown): boolean {
  return error instanceof ServiceError && error.status === 409 && error.type.endsWith("claim-lost");
}

function valueOf(step: RecordedStep): unknown {
  if (step.state !== "failed") return step.value;
  const error = (step.error ?? {}) as { type?: string; message?: string };
  throw new StepFailed(step.key, error.type ?? "Error", error.message ?? "");
}
