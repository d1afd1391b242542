/** JSON that can be read, folded and searched. Everything from a task is text here, never markup. */

import { useMemo, useState } from "preact/hooks";
import { isExact } from "../api/exact";
import { count } from "../format";
import { Button, copyText } from "./basic";

const LONG = 2000;
const MANY = 100;
/** How many entries are read at a glance: more can be searched. */
const FEW = 8;

/** How all of it is shown. */
interface View {
  expanded: boolean;
  /** What is searched for, in small letters; empty: nothing. */
  wanted: string;
  /** Groups that hold what was found. */
  open: Set<unknown>;
}

interface Props {
  value: unknown;
  label: string;
  /** What paths that are copied begin with. */
  root?: string | undefined;
}

export function Json({ value, label, root = "" }: Props) {
  const [expanded, setExpanded] = useState(false);
  const [typed, setTyped] = useState("");
  const wanted = typed.trim().toLowerCase();
  const found = useMemo(() => search(value, wanted), [value, wanted]);
  return (
    <>
      {found.entries > FEW && (
        <div class="json-bar">
          <input type="search" placeholder="Search" aria-label={`Search in the ${label}`} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          <span class="hint" role="status">
            {wanted && (found.matches ? `${count(found.matches)} found` : "nothing found")}
          </span>
          <Button kind="small" onClick={() => setExpanded(!expanded)} label={expanded ? `Fold the ${label}` : `Expand all of the ${label}`}>
            {expanded ? "Fold" : "Expand all"}
          </Button>
        </div>
      )}
      <div class="json" role="group" aria-label={label} tabIndex={0}>
        <Value key={`${expanded} ${wanted}`} value={value} depth={0} path={root} view={{ expanded, wanted, open: found.open }} />
      </div>
    </>
  );
}

const isGroup = (value: unknown): value is object => typeof value === "object" && value !== null && !isExact(value);
const textOf = (value: unknown): string => (isExact(value) ? value.rawJSON : String(value));
const fits = (text: string, wanted: string): boolean => wanted !== "" && text.toLowerCase().includes(wanted);

/** Where the names and values are that hold a text, and how many entries there are at all. */
function search(value: unknown, wanted: string): { open: Set<unknown>; matches: number; entries: number } {
  const open = new Set<unknown>();
  let [matches, entries] = [0, 0];
  const look = (each: unknown): boolean => {
    if (!isGroup(each)) {
      if (!fits(textOf(each), wanted)) return false;
      matches += 1;
      return true;
    }
    let holds = false;
    for (const [name, inner] of Object.entries(each)) {
      entries += 1;
      const named = !Array.isArray(each) && fits(name, wanted);
      if (named) matches += 1;
      if (look(inner) || named) holds = true;
    }
    if (holds) open.add(each);
    return holds;
  };
  look(value);
  return { open, matches, entries };
}

interface ValueProps {
  value: unknown;
  depth: number;
  path: string;
  view: View;
}

function Value({ value, depth, path, view }: ValueProps) {
  if (isGroup(value)) return <Group value={value} depth={depth} path={path} view={view} />;
  if (typeof value === "string") return <Text text={value} wanted={view.wanted} />;
  const kind = value === null || typeof value === "boolean" ? "j-word" : "j-number";
  return (
    <span class={kind}>
      <Marked text={textOf(value)} wanted={view.wanted} />
    </span>
  );
}

function Marked({ text, wanted }: { text: string; wanted: string }) {
  return fits(text, wanted) ? <mark>{text}</mark> : <>{text}</>;
}

function Text({ text, wanted }: { text: string; wanted: string }) {
  const [whole, setWhole] = useState(false);
  const shown = whole || text.length <= LONG ? text : text.slice(0, LONG);
  const written = JSON.stringify(shown);
  return (
    <span class="j-text">
      {fits(text, wanted) ? <mark>{written}</mark> : written}
      {shown !== text && (
        <Button kind="plain" onClick={() => setWhole(true)}>
          … show all {text.length.toLocaleString("en")} characters
        </Button>
      )}
    </span>
  );
}

/** The path of an entry as a search takes it: `args.items[0].sku`. */
function pathOf(parent: string, name: string, listed: boolean): string {
  if (listed) return `${parent}[${name}]`;
  return parent ? `${parent}.${name}` : name;
}

interface GroupProps extends ValueProps {
  value: object;
}

function Group({ value, depth, path, view }: GroupProps) {
  const entries = Object.entries(value);
  const listed = Array.isArray(value);
  const [open, close] = listed ? ["[", "]"] : ["{", "}"];
  const [shut, setShut] = useState(view.wanted ? depth > 0 && !view.open.has(value) : !view.expanded && depth > 2 && entries.length > 3);
  const [whole, setWhole] = useState(view.open.has(value));
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
        {shown.map(([name, each]) => (
          <div key={name} class="j-entry">
            {!listed && (
              <span class="j-name">
                <Marked text={JSON.stringify(name)} wanted={view.wanted} />:{" "}
              </span>
            )}
            <Value value={each} depth={depth + 1} path={pathOf(path, name, listed)} view={view} />
            {!isGroup(each) && <PathCopy path={pathOf(path, name, listed)} />}
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

function PathCopy({ path }: { path: string }) {
  return (
    <button class="j-path" type="button" onClick={() => void copyText(path)} title={`Copy ${path}`} aria-label={`Copy the path ${path}`}>
      copy path
    </button>
  );
}
