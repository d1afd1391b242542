/** A table that scrolls by itself where it is too wide, and whose rows are cards on a phone. */

import type { ComponentChildren } from "preact";

interface Column {
  name: string;
  /** Numbers stand on the right, one below the other. */
  number?: boolean;
  title?: string;
}

interface Props {
  label: string;
  columns: (string | Column)[];
  /** The last column holds buttons. */
  acts?: boolean;
  framed?: boolean;
  /** Its numbers mean nothing without the names of their columns: it scrolls on a phone as well. */
  whole?: boolean;
  children: ComponentChildren;
}

export function Table({ label, columns, acts, framed, whole, children }: Props) {
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label={label}>
      <table class={`rows ${whole ? "" : "stacked"} ${framed ? "framed" : ""}`}>
        <thead>
          <tr>
            {columns.map((column) => (typeof column === "string" ? <Head key={column} name={column} /> : <Head key={column.name} {...column} />))}
            {acts && <ActionsHead />}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function Head({ name, number, title }: Column) {
  return (
    <th class={number ? "number" : undefined} title={title}>
      {name}
    </th>
  );
}

export function ActionsHead() {
  return (
    <th class="doing">
      <span class="unseen">Actions</span>
    </th>
  );
}
