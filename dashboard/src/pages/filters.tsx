/** The filter of the list, as fields; every change goes into the address. */

import { useEffect, useRef, useState } from "preact/hooks";
import { absolute, byName, short } from "../format";
import { stats } from "../live";
import { setQuery } from "../router";
import { Button, LABELS } from "../ui/basic";
import { type Filter, isEmpty, PERIODS, STATUSES, type StatusName } from "./filter";

const TYPING = 300;
const TERMS = `An id, text in payload, tags or error, and terms:
args.order_id:42   a value in the payload (args.items[0].sku:x)
tag.team:media     a tag
worker:web-1       ran on this worker
release:1.4.2      ran this release
duration:>5s       how long the last attempt ran (<200ms, 1s..5s)
wait:<1s           how long it waited for its first attempt`;

export function Filters({ filter }: { filter: Filter }) {
  return (
    <search class="filters">
      <div class="filter-fields">
        <Search value={filter.search} />
        <TypeField value={filter.type} />
        <Tags values={filter.tags} />
        <Period filter={filter} />
        {(filter.endedAfter || filter.endedBefore) && (
          <button class="tag" type="button" aria-label="Remove the time in which they ended" onClick={() => setQuery({ endedAfter: null, endedBefore: null, at: null })}>
            ended {filter.endedAfter && `from ${absolute(filter.endedAfter)} `}
            {filter.endedBefore && `to ${absolute(filter.endedBefore)} `}×
          </button>
        )}
        {filter.fingerprint && (
          <button
            class="tag"
            type="button"
            aria-label={`Remove the error ${filter.fingerprint}`}
            onClick={() => setQuery({ fingerprint: null, at: null })}
          >
            {filter.fingerprint} ×
          </button>
        )}
        {!isEmpty(filter) && (
          <Button kind="plain" onClick={() => setQuery({ type: null, status: null, search: null, fingerprint: null, tag: null, since: null, after: null, before: null, endedAfter: null, endedBefore: null, at: null })}>
            Clear
          </Button>
        )}
      </div>
      <Statuses filter={filter} />
    </search>
  );
}

function Search({ value }: { value: string }) {
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setText(value), [value]);
  const change = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ search: next.trim() || null, at: null }, true), TYPING);
  };
  return (
    <label class="field grow">
      <span class="unseen">Search by id, in payload, tags and error, or by terms like args.order_id:42</span>
      <input
        type="search"
        data-search
        placeholder="Search id, text, args.order_id:42, duration:>5s   /"
        title={TERMS}
        value={text}
        maxLength={500}
        onInput={(event) => change(event.currentTarget.value)}
      />
    </label>
  );
}

/** Known types are offered while typing; any other name is taken too. */
function TypeField({ value }: { value: string }) {
  const names = Object.keys(stats.value?.byType ?? {}).sort(byName);
  return (
    <label class="field">
      <span class="unseen">Type</span>
      <input
        key={value}
        list="types"
        placeholder="Any type"
        defaultValue={value}
        maxLength={255}
        onChange={(event) => setQuery({ type: event.currentTarget.value.trim() || null, at: null })}
      />
      <datalist id="types">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}

function Tags({ values }: { values: string[] }) {
  const [wrong, setWrong] = useState(false);
  const add = (field: HTMLInputElement) => {
    const text = field.value.trim();
    setWrong(text !== "" && text.indexOf("=") <= 0);
    if (text.indexOf("=") <= 0) return;
    field.value = "";
    setQuery({ tag: [...new Set([...values, text])], at: null });
  };
  return (
    <span class="field tags">
      <label>
        <span class="unseen">Tag, as key=value</span>
        <input
          placeholder="tag=value"
          maxLength={500}
          aria-invalid={wrong}
          title={wrong ? "Write it as key=value" : undefined}
          onChange={(event) => add(event.currentTarget)}
        />
      </label>
      {values.map((tag) => (
        <button key={tag} class="tag" type="button" aria-label={`Remove the tag ${tag}`} onClick={() => setQuery({ tag: values.filter((each) => each !== tag), at: null })}>
          {tag} ×
        </button>
      ))}
    </span>
  );
}

function Period({ filter }: { filter: Filter }) {
  const [between, setBetween] = useState(Boolean(filter.after || filter.before));
  const choose = (value: string) => {
    setBetween(value === "between");
    if (value !== "between") setQuery({ since: value || null, after: null, before: null, at: null });
    else setQuery({ since: null, at: null });
  };
  return (
    <>
      <label class="field">
        <span class="unseen">Created</span>
        <select value={between ? "between" : filter.since} onChange={(event) => choose(event.currentTarget.value)}>
          <option value="">Any time</option>
          {Object.entries(PERIODS).map(([key, [name]]) => (
            <option key={key} value={key}>
              {name}
            </option>
          ))}
          <option value="between">Between …</option>
        </select>
      </label>
      {between &&
        (["after", "before"] as const).map((side) => (
          <label key={side} class="field">
            <span class="unseen">Created {side}</span>
            <input
              type="datetime-local"
              step="1"
              value={filter[side]}
              title={`Created ${side}`}
              onChange={(event) => setQuery({ [side]: event.currentTarget.value || null, since: null, at: null })}
            />
          </label>
        ))}
    </>
  );
}

function Statuses({ filter }: { filter: Filter }) {
  const numbers = ((filter.type ? stats.value?.byType[filter.type] : stats.value) ?? {}) as Record<string, number>;
  const toggle = (status: StatusName) => {
    const without = filter.statuses.filter((each) => each !== status);
    setQuery({ status: without.length < filter.statuses.length ? without : [...without, status], at: null });
  };
  return (
    <fieldset class="statuses">
      <legend class="unseen">Status</legend>
      {STATUSES.map((status) => (
        <label key={status} class={`choice ${status}`}>
          <input type="checkbox" checked={filter.statuses.includes(status)} onChange={() => toggle(status)} />
          <span>{LABELS[status]}</span>
          {stats.value && <span class="choice-count">{short(numbers[status] ?? 0)}</span>}
        </label>
      ))}
    </fieldset>
  );
}
