/** The picture of the lanes: one path for each colour, so that a hundred thousand pieces cost as much as ten. */

import { useMemo, useState } from "preact/hooks";
import { count, plural, span, timeOfDay } from "../../format";
import { go, href } from "../../router";
import { StillPicture } from "../../ui/calm";
import { type Change, ChangeLines } from "../../ui/changes";
import { Measured, TimeAxis } from "../../ui/measured";
import type { Lane, Lanes } from "./lanes";

/** Types with a colour of their own; the others share one. */
export const OTHERS = 9;
/** A stretch of time, in milliseconds since 1970. */
export interface Stretch {
  from: number;
  to: number;
}

const NARROW = 620;
const LABELS = 190;
const AXIS = 20;
const GAP = 5;
const LABEL = 15;
const SLOT = 7;
const [LOWEST, HIGHEST] = [16, 84];
/** From this part on it is worth a mark that attempts failed. */
const MANY = 0.1;
/** Pixels: what is shorter is no stretch, but a click. */
const CLICK = 4;

interface Band {
  lane: Lane;
  top: number;
  height: number;
}

interface Layout {
  width: number;
  left: number;
  height: number;
  bands: Band[];
  since: number;
  until: number;
  x: (at: number) => number;
}

/** Where everything is: names beside their lanes, or above them where there is no room. */
function layout(data: Lanes, width: number): Layout {
  const left = width < NARROW ? 0 : LABELS;
  const [since, until] = [Date.parse(data.since), Date.parse(data.until)];
  let top = 2;
  const bands = data.lanes.map((lane) => {
    if (!left) top += LABEL;
    const height = Math.min(Math.max(lane.slots * SLOT, LOWEST), HIGHEST);
    const band = { lane, top, height };
    top += height + GAP;
    return band;
  });
  return { width, left, height: top + AXIS, bands, since, until, x: (at) => left + ((at - since) / (until - since)) * (width - left) };
}

const colour = (type: number): string => (type < OTHERS ? `t${type}` : "t-other");

/** A path for each colour; what failed lies in red over the end of its piece, what was lost under a cross. */
function paths(data: Lanes, place: Layout): Map<string, string> {
  const found = new Map<string, string[]>();
  const box = (name: string, x: number, y: number, width: number, height: number) => {
    x = Math.min(x, place.width - width); // what has just ended is seen as well
    const parts = found.get(name) ?? found.set(name, []).get(name)!;
    parts.push(`M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`);
  };
  for (const { lane, top, height } of place.bands) {
    const slot = height / lane.slots;
    for (const each of lane.attempts) {
      const [from, to] = [place.x(place.since + each.began * 1000), place.x(place.since + each.ended * 1000)];
      const thick = Math.max(slot - (slot > 3 ? 1 : 0), 1);
      box(colour(each.type), from, top + each.slot * slot, Math.max(to - from - 0.3, 1), thick);
      if (isBad(each.outcome)) box(each.outcome === "lost" ? "lost" : "t-bad", Math.max(to - 2, from), top + each.slot * slot, 2, thick);
    }
    const step = (place.width - place.left) / ((place.until - place.since) / 1000 / (data.stepSeconds ?? 1));
    const filled = new Map<number, number>();
    // The busiest types lie lowest, in the order of the key, and all that share a colour on top.
    for (const cell of [...lane.cells].sort((a, b) => a.type - b.type)) {
      const x = place.left + cell.step * step;
      const before = filled.get(cell.step) ?? 0;
      // What is recorded a moment late lies over what came after it: a lane is never fuller than full.
      const part = Math.min((cell.busy / lane.slots) * height, height - before);
      filled.set(cell.step, before + part);
      box(colour(cell.type), x, top + height - before - part, Math.max(step - 0.4, 0.6), part);
      if (cell.lost || cell.failed > cell.ended * MANY) box("t-bad", x, top + height - 2, Math.max(step - 0.4, 0.6), 2);
    }
  }
  return new Map([...found].map(([name, parts]) => [name, parts.join("")]));
}

const FINE = ["completed", "running", "cancelled", "parked"];
const isBad = (outcome: string) => !FINE.includes(outcome);

interface Props {
  data: Lanes;
  changes: Change[];
  tell: (text: string) => void;
  chosen: Stretch | null;
  choose: (stretch: Stretch | null) => void;
}

export function Drawing({ data, changes, tell, chosen, choose }: Props) {
  return (
    <Measured class="lane-box">
      {(width) => <Picture data={data} width={width} changes={changes} tell={tell} chosen={chosen} choose={choose} />}
    </Measured>
  );
}

function Picture({ data, width, changes, tell, chosen, choose }: Props & { width: number }) {
  const place = useMemo(() => layout(data, width), [data, width]);
  const drawn = useMemo(() => paths(data, place), [data, place]);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const at = (event: PointerEvent) => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    return { x: Math.min(Math.max(event.clientX - box.left, place.left), place.width), y: event.clientY - box.top };
  };
  const time = (x: number) => place.since + ((x - place.left) / (place.width - place.left)) * (place.until - place.since);
  const under = (y: number) => place.bands.find((band) => y >= band.top && y < band.top + band.height);
  const start = (event: PointerEvent) => {
    if (event.button !== 0) return;
    (event.currentTarget as SVGElement).setPointerCapture(event.pointerId);
    setDrag([at(event).x, at(event).x]);
  };
  const move = (event: PointerEvent) => {
    const { x, y } = at(event);
    if (drag) setDrag([drag[0], x]);
    tell(inWords(data, under(y), time(x), y));
  };
  const end = (event: PointerEvent) => {
    if (!drag) return;
    const [from, to] = [Math.min(...drag), Math.max(...drag)];
    setDrag(null);
    if (to - from >= CLICK) return choose({ from: time(from), to: time(to) });
    const { x, y } = at(event);
    const attempt = attemptAt(under(y), (time(x) - place.since) / 1000, y, ((place.until - place.since) / 1000 / (place.width - place.left)) * 2);
    if (attempt) go(href(`/tasks/${attempt.id}`));
    else choose(null);
  };
  const shown: [number, number] | null = drag ?? (chosen && [place.x(chosen.from), place.x(chosen.to)]);
  return (
    <StillPicture
      class="lane-picture"
      width={place.width}
      height={place.height}
      role="img"
      aria-label={told(data)}
      onPointerDown={start}
      onPointerMove={move}
      onPointerUp={end}
      onPointerLeave={() => tell("")}
    >
      {place.bands.map((band) => (
        <Ground key={band.lane.name} band={band} place={place} />
      ))}
      {[...drawn].map(([name, path]) => (
        <path key={name} class={name} d={path} />
      ))}
      <ChangeLines changes={changes} since={place.since} until={place.until} x={place.x} height={place.height - AXIS} />
      <TimeAxis since={place.since} until={place.until} left={place.left} right={place.width} y={place.height - 5} />
      {shown && <rect class="lane-brush" x={Math.min(...shown)} y={0} width={Math.abs(shown[1] - shown[0])} height={place.height - AXIS} />}
    </StillPicture>
  );
}

function Ground({ band, place }: { band: Band; place: Layout }) {
  const { lane, top, height } = band;
  const name = lane.name.length > 30 ? `…${lane.name.slice(-29)}` : lane.name;
  const state = lane.alive === false ? (lane.lostAt.length ? "lost" : "stopped") : "";
  const beside = [state, lane.release && `release ${lane.release}`].filter(Boolean).join(", ");
  return (
    <g>
      <rect class="lane-ground" x={place.left} y={top} width={place.width - place.left} height={height} />
      <text class="lane-name" x={0} y={place.left ? top + 12 : top - 3}>
        {place.left ? name : `${name}${beside ? ` · ${beside}` : ""}`}
        <title>{lane.name}</title>
      </text>
      {place.left > 0 && height > 24 && beside && (
        <text class="lane-beside" x={0} y={top + 25}>
          {beside.length > 28 ? `${beside.slice(0, 27)}…` : beside}
        </text>
      )}
      {lane.lostAt.map((moment) => (
        <Cross key={moment} x={place.x(Date.parse(moment))} y={top + height / 2} title={`${lane.name} was lost at ${timeOfDay(moment)}`} />
      ))}
    </g>
  );
}

function Cross({ x, y, title }: { x: number; y: number; title: string }) {
  return (
    <path class="lane-cross" d={`M${x - 4} ${y - 4}l8 8m0 -8l-8 8`}>
      <title>{title}</title>
    </path>
  );
}

/** The attempt under the pointer, or so close that a finger means it; where several are, one that failed, or the nearest. */
function attemptAt(band: Band | undefined, seconds: number, y: number, near: number) {
  if (!band) return undefined;
  const slot = Math.floor(((y - band.top) / band.height) * band.lane.slots);
  const close = band.lane.attempts.filter((each) => each.slot === slot && each.began - near <= seconds && each.ended + near >= seconds);
  const far = (each: Lane["attempts"][0]) => (isBad(each.outcome) ? 0 : near) + Math.abs((each.began + each.ended) / 2 - seconds);
  return close.sort((a, b) => far(a) - far(b))[0];
}

/** What is under the pointer, in words. */
function inWords(data: Lanes, band: Band | undefined, time: number, y: number): string {
  const moment = timeOfDay(time);
  if (!band) return moment;
  const { lane } = band;
  const after = (time - Date.parse(data.since)) / 1000;
  if (data.stepSeconds === null) {
    const length = (Date.parse(data.until) - Date.parse(data.since)) / 1000;
    const each = attemptAt(band, after, y, length / 500);
    return each ? `${moment} · ${lane.name} · ${data.types[each.type]} ${each.outcome}, ran ${span(each.ended - each.began)}; click to open it` : `${moment} · ${lane.name}`;
  }
  const cells = lane.cells.filter((cell) => cell.step === Math.floor(after / data.stepSeconds!));
  const busiest = [...cells].sort((a, b) => b.busy - a.busy).slice(0, 3);
  const ended = cells.reduce((sum, cell) => sum + cell.ended, 0);
  const failed = cells.reduce((sum, cell) => sum + cell.failed + cell.lost, 0);
  const parts = busiest.map((cell) => `${data.types[cell.type]} ${cell.busy.toFixed(1)}`).join(", ");
  return `${moment} · ${lane.name} · ${parts ? `${parts} of ${plural(lane.slots, "slot")}, ` : ""}${count(ended)} ended${failed ? `, ${count(failed)} failed` : ""}`;
}

function told(data: Lanes): string {
  const failed = data.lanes.reduce((sum, lane) => sum + lane.failed, 0);
  const lost = data.lanes.reduce((sum, lane) => sum + lane.lost, 0);
  return `${plural(data.lanes.length, "lane")} with ${plural(data.count, "attempt")} from ${timeOfDay(data.since)} to ${timeOfDay(data.until)}, ${count(failed)} failed, ${count(lost)} lost; busiest: ${data.types.slice(0, 3).join(", ") || "nothing"}`;
}
