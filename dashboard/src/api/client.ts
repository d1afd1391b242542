/** The public HTTP interface, typed from its own description. */

import createClient from "openapi-fetch";
import { root } from "../router";
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

export const api = createClient<paths>({ baseUrl: root, credentials: "same-origin" });

/** What the service said was wrong, or that it could not be reached (status 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly field?: string,
  ) {
    super(detail);
  }
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

let underWay = 0;

/** Wait until every question is answered. */
export async function settled(): Promise<void> {
  while (underWay) await new Promise((done) => setTimeout(done, 20));
}

/** The data of an answer, or a Problem; who is not signed in any more is led to where they can. */
export async function take<T>(asked: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  underWay++;
  try {
    answer = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "The service cannot be reached.");
  } finally {
    underWay--;
  }
  if (answer.response.ok) return answer.data as T;
  if (answer.response.status === 401) location.reload();
  const said = answer.error as { detail?: string; field?: string } | undefined;
  throw new Problem(answer.response.status, said?.detail ?? answer.response.statusText, said?.field ?? undefined);
}
