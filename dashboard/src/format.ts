/** Numbers and times as people read them. */

import { computed, signal } from "@preact/signals";

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value: number): string => whole.format(value);
export const short = (value: number): string => (value < 1_000_000 ? whole.format(value) : compact.format(value));

/** `one task`, `1,203 tasks`. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** `one waits`, `three wait`. */
export const verb = (value: number, one: string, many: string): string => (value === 1 ? one : many);

/** A span of seconds in one or two units: 0.4 s, 12 s, 3 min 20 s, 5 h, 2 d. */
export function span(seconds: number): string {
  const s = Math.abs(seconds);
  if (s < 0.001) return "<1 ms";
  if (s < 0.01) return `${Number((s * 1000).toFixed(1))} ms`;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${Number(s.toFixed(1))} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return two(s, 60, "min", 1, "s");
  if (s < 86_400) return two(s, 3600, "h", 60, "min");
  return two(s, 86_400, "d", 3600, "h");
}

function two(seconds: number, large: number, first: string, small: number, second: string): string {
  const whole = Math.floor(seconds / large);
  const rest = Math.floor((seconds - whole * large) / small);
  return rest && whole < 10 ? `${whole} ${first} ${rest} ${second}` : `${whole} ${first}`;
}

export const seconds = (from: string, to: string | number): number =>
  ((typeof to === "number" ? to : Date.parse(to)) - Date.parse(from)) / 1000;

/** `3 min ago`, `in 12 s`, `now`. */
export function relative(moment: string, now: number): string {
  const ago = (now - Date.parse(moment)) / 1000;
  if (Math.abs(ago) < 1) return "now";
  const rounded = Math.abs(ago) < 10 ? Math.round(Math.abs(ago)) : Math.abs(ago);
  const text = rounded < 10 ? `${rounded} s` : span(rounded);
  return ago > 0 ? `${text} ago` : `in ${text}`;
}

/** Whether moments are shown in UTC instead of the reader's own time; the browser remembers it. */
export const utc = signal(localStorage.getItem("utc") === "yes");

export function showUtc(on: boolean): void {
  utc.value = on;
  localStorage.setItem("utc", on ? "yes" : "no");
}

const TIME = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
const DAY = { day: "numeric", month: "short" } as const;
/** The one way in which moments are written, as long as the place allows. */
const formats = computed(() => {
  const zone = utc.value ? { timeZone: "UTC" } : {};
  const format = (form: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat("en-GB", { ...form, ...zone });
  return {
    exact: format({ ...DAY, year: "numeric", ...TIME, second: "2-digit", timeZoneName: "short" }),
    clock: format({ ...TIME, second: "2-digit", timeZoneName: "short" }),
    seconds: format({ ...TIME, second: "2-digit" }),
    minutes: format(TIME),
    day: format(DAY),
    brief: format({ ...DAY, ...TIME }),
  };
});

/** `17 Nov 2026, 14:03:12 CET`. */
export const absolute = (moment: string | number): string => formats.value.exact.format(new Date(moment));
/** `14:03:12 CET`. */
export const timeOfDay = (moment: string | number): string => formats.value.clock.format(new Date(moment));

/** As much of a moment as marks that are so many seconds apart leave open. */
export function mark(moment: number, apart: number): string {
  const { day, minutes, seconds } = formats.value;
  return (apart >= 86_400 ? day : apart < 60 ? seconds : minutes).format(moment);
}

/** Seconds between marks on an axis of time that people can count in. */
const APART = [1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Round moments from one moment to another, in the zone that is shown: at most so many, and how many seconds apart. */
export function moments(since: number, until: number, most: number): { at: number[]; apart: number } {
  const apart = APART.find((each) => (until - since) / 1000 / each <= most) ?? APART[APART.length - 1]!;
  const offset = utc.value ? 0 : new Date(until).getTimezoneOffset() * 60_000;
  const step = apart * 1000;
  const at: number[] = [];
  for (let each = Math.ceil((since - offset) / step) * step + offset; each <= until; each += step) at.push(each);
  return { at, apart };
}

/** The zone in which moments are shown, as short as it is written: `CET`. */
export const zoneOf = (moment: string): string => timeOfDay(moment).split(" ").slice(1).join(" ");

/** A part of all in percent, as exact as it says something: `14.9 %`, but `99.95 %`. */
export function percent(value: number | null): string {
  if (value === null) return "–";
  const fine = value > 99 && value < 100 ? 3 : value && value < 1 ? 2 : 1;
  return `${Number(value.toFixed(fine)).toLocaleString("en-GB", { minimumFractionDigits: 1, maximumFractionDigits: 3 })} %`;
}

/** A moment to come, as short as it can be told: the time if it is today, with seconds if it has some, else the day too. */
export function whenInWords(moment: string): string {
  const { day, brief, minutes, seconds } = formats.value;
  const at = new Date(moment);
  const today = at.getSeconds() ? seconds : minutes;
  return (day.format(at) === day.format(new Date()) ? today : brief).format(at);
}

const ISO = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g;
/** A text with its moments in the reader's own time. */
export const readable = (text: string): string => text.replace(ISO, (moment) => absolute(moment));

/** A moment as a field for it takes it: in the reader's own time, to the second. */
export function localTime(moment: string | number | null | undefined): string {
  if (!moment) return "";
  const at = new Date(moment);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The order in which a person looks for names: job9 comes before job10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

export const shortId = (id: string): string => id.slice(-8);

/** The last line of a traceback, which says what went wrong. */
export function lastLine(error: string): string {
  const lines = error.trim().split("\n");
  return lines[lines.length - 1] ?? "";
}

export function jsonPreview(value: unknown): string {
  if (value === null || value === undefined) return "";
  const text = JSON.stringify(value);
  return text === "{}" ? "" : text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`;
  if (value < 1024 ** 2) return `${(value / 1024).toFixed(0)} KB`;
  if (value < 1024 ** 3) return `${(value / 1024 ** 2).toFixed(0)} MB`;
  return `${(value / 1024 ** 3).toFixed(1)} GB`;
}

/** What is left of it; below nothing, how often it was used up. */
export const budgetText = (percent: number): string => (percent >= 0 ? `${percent} %` : `none, used ${Number((1 - percent / 100).toPrecision(2))} times over`);

/** How a number has changed, in percent of what it was. */
export function change(now: number, before: number | null | undefined): string {
  if (!before) return "";
  const part = ((now - before) / before) * 100;
  return Math.abs(part) < 0.5 ? "unchanged" : `${part > 0 ? "+" : "−"}${Math.abs(part).toFixed(0)} %`;
}
