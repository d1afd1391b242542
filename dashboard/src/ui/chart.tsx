/** Lines over time, drawn by uPlot; the numbers under the pointer, or the newest, stand beside their names. */

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { absolute, mark, utc } from "../format";
import { Panel } from "./basic";
import { type Change, MARKED, toldOf } from "./changes";

export interface Line {
  name: string;
  /** The name of a colour of the style sheet. */
  color: string;
  values: (number | null)[];
  /** Filled down to the axis. */
  filled?: boolean;
  /** What holds at this moment, where that is known better than from the last value. */
  now?: number | null | undefined;
  /** It goes on where nothing was sampled in between. */
  bridged?: boolean;
}

interface ChartProps {
  title: string;
  /** Seconds since 1970, one for each value. */
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  /** What is shown where there is nothing yet. */
  empty: string;
  /** Seconds that are shown at least, however few the values. */
  atLeast?: number;
  /** What the height stands for at least, so that nothing at all is no mountain. */
  least: number;
  /** There are no halves of what is counted: it stays until it changes. */
  whole?: boolean;
  /** Ten times as much is as high as ten times as much again. */
  log?: boolean;
  /** What was changed, and when: a line for each. */
  marks?: Change[];
  /** A stretch of time was chosen, in seconds since 1970. */
  chosen?: (from: number, to: number) => void;
}

const HEIGHT = 170;
/** Steps between the marks of an axis on which there are no halves: 1, 2, 5, 10, 20 … */
const WHOLE = Array.from({ length: 30 }, (_, at) => [1, 2, 5][at % 3]! * 10 ** Math.floor(at / 3));

export function Chart({ empty, ...drawn }: ChartProps) {
  const { title, lines, format, times } = drawn;
  const [at, setAt] = useState<number | null>(null);
  const shownAt = at === null ? undefined : times[at];
  const some = lines.some((line) => line.values.some((value) => value !== null));
  return (
    <Panel title={title} class="chart" aside={<Legend lines={lines} at={at} time={shownAt} format={format} />}>
      {some ? (
        <Plot {...drawn} point={setAt} />
      ) : (
        <p class="chart-empty">{empty}</p>
      )}
    </Panel>
  );
}

interface LegendProps {
  lines: Line[];
  at: number | null;
  /** The moment under the pointer. */
  time: number | undefined;
  format: (value: number) => string;
}

function Legend({ lines, at, time, format }: LegendProps) {
  return (
    <>
      {time !== undefined && <time class="chart-time">{absolute(time * 1000)}</time>}
      {lines.map((line) => {
        const value = at === null ? newest(line) : (line.values[at] ?? null);
        return (
          <span key={line.name} class="key">
            <i class={`dot c-${line.color}`} />
            {line.name} <b>{value === null ? "–" : format(value)}</b>
          </span>
        );
      })}
    </>
  );
}

/** As much of a moment as its neighbours leave open: the day where the marks are days apart, seconds where they are close. */
function moment(at: number, marks: number[]): string {
  return mark(at * 1000, marks.length > 1 ? (marks[1] ?? 0) - (marks[0] ?? 0) : 60);
}

const newest = (line: Line): number | null => (line.now === undefined ? lastOf(line.values) : line.now);

function lastOf(values: (number | null)[]): number | null {
  for (let at = values.length - 1; at >= 0; at--) if (values[at] !== null) return values[at] ?? null;
  return null;
}

type PlotProps = Omit<ChartProps, "empty"> & { point: (at: number | null) => void };

function Plot(drawn: PlotProps) {
  const { times, lines, format, title } = drawn;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marks = useRef<Change[]>([]);
  const [under, setUnder] = useState<Touched | null>(null);
  marks.current = drawn.marks ?? [];
  const shape = `${lines.map((line) => line.name).join()} ${drawn.log ?? false} ${utc.value}`;
  const data = [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const element = box.current!;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, drawn, marks, setUnder), data, element);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [times, lines, drawn.marks?.length]);

  return (
    <div class="plotted">
      <div ref={box} class="plot" role="img" aria-label={`${title}: ${told(lines, format)}`} />
      {under && <Words of={under} width={box.current?.clientWidth ?? 0} />}
    </div>
  );
}

/** The chart in words, for who does not see it. */
function told(lines: Line[], format: (value: number) => string): string {
  const parts = lines.map((line) => {
    const known = line.values.filter((value): value is number => value !== null);
    if (!known.length) return `${line.name} nothing`;
    return `${line.name} now ${format(newest(line) ?? 0)}, at most ${format(Math.max(...known))}`;
  });
  return parts.join("; ");
}

/** Pixels of a digit on an axis, and of the space beside it. */
const DIGIT = 6.6;
const BESIDE = 14;

/** Pixels from a line at which the pointer means it. */
const NEAR = 6;

/** The changes whose lines are under the pointer, and where it is. */
interface Touched {
  left: number;
  marks: Change[];
}

function touched(plot: uPlot, marks: Change[]): Touched | null {
  const { left = -1 } = plot.cursor;
  if (left < 0) return null;
  const near = marks.filter(({ at, kind }) => MARKED[kind] && Math.abs(plot.valToPos(Date.parse(at) / 1000, "x") - left) <= NEAR);
  return near.length ? { left: left + plot.bbox.left / devicePixelRatio, marks: near } : null;
}

/** Beside the pointer, on the side where there is room. */
function Words({ of, width }: { of: Touched; width: number }) {
  const place = of.left > width / 2 ? { right: `${width - of.left + 8}px` } : { left: `${of.left + 8}px` };
  return (
    <div class="change-words" style={place}>
      {of.marks.slice(0, 3).map((each) => (
        <div key={each.at + each.text}>{toldOf(each)}</div>
      ))}
      {of.marks.length > 3 && <div>and {of.marks.length - 3} more</div>}
    </div>
  );
}

function drawMarks(plot: uPlot, marks: Change[], color: (name: string) => string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.setLineDash([4, 3]);
  for (const { at, kind } of marks) {
    const x = plot.valToPos(Date.parse(at) / 1000, "x", true);
    if (!MARKED[kind] || x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = color(MARKED[kind]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(element: HTMLElement, drawn: PlotProps, marks: { current: Change[] }, touch: (under: Touched | null) => void): uPlot.Options {
  const { lines, format, point, least, whole, log, chosen, atLeast = 0 } = drawn;
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: color("soft"), font: "11px system-ui", grid: { stroke: color("line"), width: 1 }, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    // The marks of days and hours stand at those of the zone that is shown.
    tzDate: (at) => (utc.peek() ? uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000)),
    legend: { show: false },
    padding: [10, 24, 0, 0],
    cursor: { y: false, sync: { key: "charts" }, points: { size: 6 }, drag: { x: Boolean(chosen), y: false, setScale: false } },
    scales: {
      // By the values themselves: of a single one uPlot would make a range of years.
      x: { range: (plot) => timeRange(plot.data[0] as number[], atLeast) },
      y: log
        ? { distr: 3, range: (_, low, most) => [Math.max(Math.min(low, most / 10) * 0.8, 1e-4), Math.max(most * 1.3, least)] }
        : { range: (_, __, most) => [0, Math.max(most * 1.1, least)] },
    },
    axes: [
      { ...axis, size: 26, space: 70, values: (_, marks) => marks.map((mark) => moment(mark, marks)) },
      { ...axis, size: (_, texts) => Math.max(30, BESIDE + DIGIT * Math.max(0, ...(texts ?? []).map((text) => text.length))), ...(whole ? { incrs: WHOLE } : {}), values: (_, values) => values.map((value) => (value ? format(value) : value === null ? "" : "0")) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: color(`c-${line.color}`),
        width: 1.5,
        ...(line.filled ? { fill: `${color(`c-${line.color}`)}22` } : {}),
        ...(whole ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
        points: { show: true, size: 6, filter: lonely },
        spanGaps: line.bridged ?? false,
      })),
    ],
    hooks: {
      drawClear: [(plot) => drawMarks(plot, marks.current, color)],
      setCursor: [
        (shown) => {
          point(shown.cursor.idx ?? null);
          touch(touched(shown, marks.current));
        },
      ],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          chosen?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

function timeRange(times: number[], atLeast: number): [number, number] {
  const last = times.at(-1) ?? 0;
  return [Math.min(times[0] ?? 0, last - Math.max(atLeast, 60)), last];
}

/** The values without a neighbour, which no line shows: each gets a dot. */
function lonely(plot: uPlot, series: number): number[] {
  const values = plot.data[series] ?? [];
  const known = (at: number) => values[at] !== null && values[at] !== undefined;
  return [...values.keys()].filter((at) => known(at) && !known(at - 1) && !known(at + 1));
}
