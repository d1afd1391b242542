/** JSON that can be read and folded. Everything from a task is text here, never markup. */

import { useState } from "preact/hooks";
import { isExact } from "../api/exact";
import { Button } from "./basic";

const LONG = 2000;
const MANY = 100;

export function Json({ value, label }: { value: unknown; label: string }) {
  return (
    <div class="json" role="group" aria-label={label} tabIndex={0}>
      <Value value={value} depth={0} />
    </div>
  );
}

function Value({ value, depth }: { value: unknown; depth: number }) {
  if (value === null || typeof value === "boolean") return <span class="j-word">{String(value)}</span>;
  if (typeof value === "number") return <span class="j-number">{String(value)}</span>;
  if (isExact(value)) return <span class="j-number">{value.rawJSON}</span>;
  if (typeof value === "string") return <Text text={value} />;
  if (Array.isArray(value)) {
    return <Group open="[" close="]" depth={depth} entries={value.map((each) => [null, each])} />;
  }
  return <Group open="{" close="}" depth={depth} entries={Object.entries(value as object)} />;
}

function Text({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  const shown = whole || text.length <= LONG ? text : text.slice(0, LONG);
  return (
    <span class="j-text">
      {JSON.stringify(shown)}
      {shown !== text && (
        <Button kind="plain" onClick={() => setWhole(true)}>
          … show all {text.length.toLocaleString("en")} characters
        </Button>
      )}
    </span>
  );
}

interface GroupProps {
  open: string;
  close: string;
  depth: number;
  entries: [string | null, unknown][];
}

function Group({ open, close, depth, entries }: GroupProps) {
  const [shut, setShut] = useState(depth > 2 && entries.length > 3);
  const [whole, setWhole] = useState(false);
  if (!entries.length) return <span class="j-mark">{open + close}</span>;
  const fold = (
    <button class="fold" type="button" onClick={() => setShut(!shut)} aria-expanded={!shut} aria-label="Fold">
      {shut ? "▸" : "▾"}
    </button>
  );
  if (shut) {
    return (
      <>
        {fold}
        <span class="j-mark">
          {open} … {entries.length} {close}
        </span>
      </>
    );
  }
  const shown = whole ? entries : entries.slice(0, MANY);
  return (
    <>
      {fold}
      <span class="j-mark">{open}</span>
      <div class="j-group">
        {shown.map(([name, value], place) => (
          <div key={name ?? place} class="j-entry">
            {name !== null && <span class="j-name">{JSON.stringify(name)}: </span>}
            <Value value={value} depth={depth + 1} />
          </div>
        ))}
        {shown.length < entries.length && (
          <Button kind="plain" onClick={() => setWhole(true)}>
            show {entries.length - shown.length} more
          </Button>
        )}
      </div>
      <span class="j-mark">{close}</span>
    </>
  );
}
