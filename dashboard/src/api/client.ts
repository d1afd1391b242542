/** The public HTTP interface, typed from its own description. */

import { signal } from "@preact/signals";
import createClient from "openapi-fetch";
import { root } from "../router";
import { parseAnswer } from "./exact";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Task = Schemas["Task"];
export type TaskDetail = Schemas["TaskDetail"];
export type Attempt = Schemas["Attempt"];
export type Status = Task["status"];
export type Stats = Schemas["Stats"];
export type Control = Schemas["Control"];
export type TypeInfo = Schemas["TypeInfo"];
export type Worker = Schemas["Worker"];
export type EndedWorker = Schemas["EndedWorker"];
export type Schedule = Schemas["Schedule"];
export type Session = Schemas["Session"];
export type Permission = Session["permissions"][number];
export type Explained = Schemas["Explained"];
export type BulkFilter = Schemas["BulkFilter"];
export type Action = Schemas["BulkAction"]["action"];
export type CreateTask = Schemas["CreateTask"];
export type PutSchedule = Schemas["PutSchedule"];
export type Token = Schemas["TokenInfo"];
export type ErrorGroup = Schemas["ErrorInfo"];
export type AuditEntry = Schemas["Entry"];

/** Milliseconds after which a question without an answer counts as lost: a frozen service answers nothing, for ever. */
const PATIENCE = 30_000;

/** `fetch`, with an end for questions, and numbers in the answer as they were written. */
async function exactFetch(request: Request): Promise<Response> {
  const signal = request.method === "GET" ? AbortSignal.any([request.signal, AbortSignal.timeout(PATIENCE)]) : request.signal;
  const response = await fetch(request, { signal });
  const text = response.text.bind(response);
  response.json = async () => parseAnswer(await text());
  // Without a length, which a proxy that compresses takes away, the client would not ask for `json`.
  if (!response.headers.has("Content-Length")) {
    const headers = new Headers(response.headers);
    headers.set("Content-Length", "unknown");
    Object.defineProperty(response, "headers", { value: headers });
  }
  return response;
}

let underWay = 0;
/** While somebody has the service for themselves, until when. */
let taken: Promise<void> | null = null;

async function waitingFetch(request: Request): Promise<Response> {
  while (taken) await taken;
  underWay++;
  try {
    return await exactFetch(request);
  } finally {
    underWay--;
  }
}

const atOnce = createClient<paths>({ baseUrl: root, credentials: "same-origin", fetch: exactFetch });
export const api = createClient<paths>({ baseUrl: root, credentials: "same-origin", fetch: waitingFetch });

/** Do something while this page asks nothing else: what was asked is answered before, what is asked meanwhile waits. */
export async function alone<T>(work: (api: typeof atOnce) => Promise<T>): Promise<T> {
  while (taken) await taken;
  let leave = () => {};
  taken = new Promise((done) => (leave = done));
  try {
    while (underWay) await new Promise((done) => setTimeout(done, 20));
    return await work(atOnce);
  } finally {
    taken = null;
    leave();
  }
}

/** What the service said was wrong, or that it could not be reached (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly field?: string,
    readonly kind = "",
  ) {
    super(detail);
  }

  /** The service is there, but its database is not. */
  get ofDatabase(): boolean {
    return this.kind.includes(":database-");
  }
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The last answer was that the database is away. */
export const databaseAway = signal(false);

/** The data of an answer, or a Problem; who is not signed in any more is led to where they can. */
export async function take<T>(asked: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "The service cannot be reached.");
  }
  if (answer.response.ok) {
    databaseAway.value = false;
    return answer.data as T;
  }
  if (answer.response.status === 401) location.reload();
  const said = answer.error as { detail?: string; field?: string; type?: string } | undefined;
  const problem = new Problem(answer.response.status, said?.detail ?? answer.response.statusText, said?.field ?? undefined, said?.type);
  databaseAway.value = problem.ofDatabase;
  throw problem;
}
