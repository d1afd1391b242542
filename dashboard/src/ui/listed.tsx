/** A list in each of its states: not read yet, unreadable, empty, there. */

import type { ComponentChildren } from "preact";
import { connection } from "../live";
import type { Resource } from "../resource";
import { Loading, Trouble } from "./basic";

interface Props {
  source: Resource<unknown>;
  some: boolean;
  /** Said where there is nothing; never while nobody knows whether there is. */
  empty: ComponentChildren;
  children: ComponentChildren;
  /** How many lines are drawn while it is read. */
  rows?: number;
  /** It stands by itself, not in a panel. */
  framed?: boolean;
}

export function Listed({ source, some, empty, children, rows, framed }: Props) {
  if (source.loading) return <Loading rows={rows ?? 5} framed={framed} />;
  return (
    <>
      <Unread source={source} />
      {some ? children : !source.problem && empty}
    </>
  );
}

/** Why it could not be read; while the banner above says why, what was read before stands without it. */
export function Unread({ source }: { source: Resource<unknown> }) {
  const { problem, data, refresh } = source;
  const said = (problem?.status === 0 && connection.value === "lost") || (problem?.ofDatabase && connection.value === "database");
  if (!problem || (said && data !== null)) return null;
  return <Trouble problem={problem} retry={refresh} />;
}
