/** Small parts that every page uses. */

import type { ComponentChildren } from "preact";
import type { Problem, Status, Task } from "../api/client";
import { now, TICK } from "../clock";
import { absolute, relative } from "../format";
import { href } from "../router";
import { say } from "../toasts";

/** The status a person sees: waiting for its time and waiting for a retry have names of their own. */
export type Shown = Status | "delayed" | "waiting" | "retrying";

export function shownStatus(task: Pick<Task, "status" | "runAfter" | "nextRetryAt" | "completedAt" | "waitsFor">): Shown {
  if (task.status === "pending" && task.waitsFor) return "waiting";
  if (task.status === "pending" && task.runAfter && Date.parse(task.runAfter) > now.value + TICK) return "delayed";
  if (task.status === "failed" && !task.completedAt) return "retrying";
  return task.status;
}

export const LABELS: Record<Shown, string> = {
  pending: "Pending",
  delayed: "Delayed",
  waiting: "Waiting",
  processing: "Processing",
  completed: "Completed",
  failed: "Failed",
  retrying: "Retrying",
  cancelled: "Cancelled",
  buried: "Buried",
};

export function Badge({ status }: { status: Shown }) {
  return <span class={`badge ${status}`}>{LABELS[status] ?? status}</span>;
}

/** A moment, as long ago as it is; the exact time is in the title. */
export function Ago({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="soft">–</span>;
  return (
    <time dateTime={at} title={absolute(at)}>
      {relative(at, now.value)}
    </time>
  );
}

interface ButtonProps {
  onClick?: () => void;
  children: ComponentChildren;
  kind?: "primary" | "danger" | "plain" | "small" | "small danger";
  disabled?: boolean | undefined;
  /** It cannot be pressed now, and keeps its place and the focus. */
  off?: boolean;
  title?: string;
  label?: string;
  /** Whether what it opens is open. */
  expanded?: boolean;
  type?: "button" | "submit";
}

export function Button({ onClick, children, kind, disabled, off, title, label, expanded, type = "button" }: ButtonProps) {
  return (
    <button
      type={type}
      class={kind}
      onClick={off ? undefined : onClick}
      disabled={disabled}
      aria-disabled={off || undefined}
      title={title}
      aria-label={label}
      aria-expanded={expanded}
    >
      {children}
    </button>
  );
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("The browser did not allow copying.", undefined, true);
  }
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  return (
    <Button kind="small" onClick={() => void copyText(text)} label={label}>
      Copy
    </Button>
  );
}

interface PanelProps {
  title: ComponentChildren;
  children: ComponentChildren;
  aside?: ComponentChildren;
  class?: string;
}

export function Panel({ title, children, aside, class: name }: PanelProps) {
  return (
    <section class={`panel ${name ?? ""}`}>
      <header>
        <h2>{title}</h2>
        {aside && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

interface LoadingProps {
  rows?: number;
  /** As high as the rows of a table, in its frame. */
  framed?: boolean | undefined;
}

/** What is on its way, in the place and about the size that it will have. */
export function Loading({ rows = 5, framed }: LoadingProps) {
  return (
    <>
      <p class="unseen" role="status">
        Loading …
      </p>
      <div class={framed ? "loading framed" : "loading"} aria-busy="true">
        {Array.from({ length: rows }, (_, row) => (
          <div key={row} class="bone" />
        ))}
      </div>
    </>
  );
}

export function Trouble({ problem, retry }: { problem: Problem; retry?: () => void }) {
  return (
    <div class="trouble" role="alert">
      <p>
        <strong>{problem.status === 403 ? "Your role may not see this." : "Could not load."}</strong>{" "}
        {problem.detail}
      </p>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

/** What the service did not take, said beside what was typed. */
export function Refusal({ children }: { children: ComponentChildren }) {
  return (
    <p class="trouble" role="alert">
      {children}
    </p>
  );
}

export function PageHead({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="page-head">
      <h1>{title}</h1>
      {children && <div class="page-actions">{children}</div>}
    </div>
  );
}

export function Bar({ part, label }: { part: number; label: string }) {
  return (
    <progress max={1} value={Math.max(0, Math.min(1, part))} aria-label={label}>
      {Math.round(part * 100)} %
    </progress>
  );
}

/** One number with its name, in a strip of several. */
export function Fact({ name, children, to }: { name: string; children: ComponentChildren; to?: string | undefined }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{to ? <a href={href(to)}>{children}</a> : children}</dd>
    </div>
  );
}

interface ChoiceProps {
  name: string;
  /** Value and text of each. */
  options: [string, string][];
  chosen: string;
  label?: string;
}

/** A list of which one is chosen at first; the form reads it. */
export function Choice({ name, options, chosen, label }: ChoiceProps) {
  return (
    <select name={name} aria-label={label}>
      {options.map(([value, text]) => (
        <option key={value} value={value} selected={value === chosen}>
          {text}
        </option>
      ))}
    </select>
  );
}
