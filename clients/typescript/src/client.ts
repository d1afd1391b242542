import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A task as the service shows it. */
export type Task = Schemas["TaskDetail"];
/** A task that was accepted. */
export type Created = Schemas["Created"];
/** What a submission may say about its task beside its type and payload. */
export type CreateOptions = NonNullable<Schemas["CreateTask"]["options"]>;

export interface ClientOptions {
  /** Where the service is, such as `http://localhost:8000`, with the path under which it is mounted. */
  url: string;
  /** Made by `tasklib token create`. */
  token?: string;
  /** How often a request is sent again that got no answer, or one that says to try again. */
  retries?: number;
  fetch?: typeof fetch;
}

/** The service refused a request; `status` and `type` say why, the message what to do. */
export class ServiceError extends Error {
  override name = "ServiceError";

  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
  ) {
    super(message);
  }
}

/** Asks a tasklib service. Requests that may be repeated are, when no answer arrives. */
export class Client {
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = { ...options, url: options.url.replace(/\/+$/, "") };
  }

  /** Store a task; it is durable when this returns. Sent again after a lost answer, it is still one task. */
  async submit(type: string, payload: unknown = {}, options: CreateOptions = {}): Promise<Created> {
    const headers = { "Idempotency-Key": crypto.randomUUID() };
    return this.#insist("POST", "/api/tasks", { type, payload, options }, headers);
  }

  /** The task with this id; a ServiceError with status 404 if there is none. */
  async get(id: string): Promise<Task> {
    return this.#insist("GET", `/api/tasks/${encodeURIComponent(id)}`);
  }

  /** Cancel a task: at once if it waits, by a request if it runs. */
  async cancel(id: string): Promise<Task> {
    return this.#insist("POST", `/api/tasks/${encodeURIComponent(id)}/cancel`);
  }

  /** One request, not repeated. */
  async send<T>(
    method: string,
    path: string,
    body?: unknown,
    more: { headers?: Record<string, string>; signal?: AbortSignal } = {},
  ): Promise<T> {
    const { url, token, fetch: ask = fetch } = this.#options;
    const headers: Record<string, string> = { ...more.headers };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (token) headers["Authorization"] = `Bearer ${token}`;
    const answer = await ask(url + path, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(more.signal ? { signal: more.signal } : {}),
    });
    const text = await answer.text();
    if (answer.ok) return (text ? JSON.parse(text) : null) as T;
    throw refused(answer.status, text);
  }

  async #insist<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.send<T>(method, path, body, headers ? { headers } : {});
      } catch (error) {
        if (!isTemporary(error) || attempt >= (this.#options.retries ?? 5)) throw error;
        await rest(backoff(attempt));
      }
    }
  }
}

/** Whether the same request may succeed later: there was no answer, or one that says so. */
export function isTemporary(error: unknown): boolean {
  return !(error instanceof ServiceError) || error.status >= 500 || error.status === 429;
}

/** Seconds to wait before the next try: more each time, at most ten, and never the same for two clients. */
export function backoff(attempt: number): number {
  return Math.min(10, 0.2 * 2 ** attempt) * (0.5 + Math.random() / 2);
}

/** Return after so many seconds, or when the signal is aborted. */
export function rest(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((rested) => {
    if (signal?.aborted) return rested();
    const timer = setTimeout(done, seconds * 1000);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      rested();
    }
    signal?.addEventListener("abort", done);
  });
}

function refused(status: number, text: string): ServiceError {
  try {
    const problem = JSON.parse(text) as Schemas["Problem"];
    return new ServiceError(status, problem.type, problem.detail);
  } catch {
    return new ServiceError(status, "unknown", text.slice(0, 300));
  }
}
