/** Choices that are kept in the address. */

import { byName } from "../format";
import { stats } from "../live";
import { setQuery } from "../router";

/** One of the known types, or all of them. */
export function TypeChoice({ type, label = "Type" }: { type: string; label?: string }) {
  const types = Object.keys(stats.value?.byType ?? {}).sort(byName);
  return (
    <label class="field">
      <span class="unseen">{label}</span>
      <select value={type} onChange={(event) => setQuery({ type: event.currentTarget.value || null })}>
        <option value="">All types</option>
        {types.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** In which order a list stands: pairs of a value and a text, the usual one first and empty. */
export function OrderChoice({ order, orders }: { order: string; orders: readonly (readonly [string, string, ...unknown[]])[] }) {
  return (
    <label class="field">
      <span class="unseen">Order</span>
      <select value={order} onChange={(event) => setQuery({ sort: event.currentTarget.value || null }, true)}>
        {orders.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
