// Reports of a peer's program to the bench: the same lines of JSON as reporting.py.

import { writeSync } from "node:fs";

export const [, , command, address, number] = process.argv;
export const count = Number(number ?? 0);
export const tally = { ran: 0 };
// As in reporting.py.
const WARM_UP = 200;

export function report(what) {
  writeSync(1, JSON.stringify({ pid: process.pid, ...what }) + "\n");
}

export function startReporting() {
  let reported = 0;
  setInterval(() => {
    if (tally.ran !== reported) report({ ran: (reported = tally.ran) });
  }, 1000 * Number(process.env.BENCH_TICK_SECONDS ?? 0.02));
}

export function reportLatency(submitted) {
  report({ latency: now() - submitted });
}

export async function timeCalls(call, times) {
  for (let number = 0; number < (times > 1 ? WARM_UP : 0); number++) await call(number);
  const each = [];
  const started = performance.now();
  const before = process.cpuUsage();
  for (let number = 0; number < times; number++) {
    const called = performance.now();
    await call(number);
    each.push((performance.now() - called) / 1000);
  }
  const seconds = (performance.now() - started) / 1000;
  each.sort((a, b) => a - b);
  const { user, system } = process.cpuUsage(before);
  const at = (part) => each[Math.floor(each.length * part)];
  report({ done: times, seconds, p50: at(0.5), p99: at(0.99), cpu: (user + system) / 1e6 });
}

export async function pace(call, times) {
  for (let number = 0; number < times; number++) {
    await new Promise((resume) => setTimeout(resume, 50));
    await call(now());
  }
}

export function chunks(total, size = 1000) {
  const starts = Array.from({ length: Math.ceil(total / size) }, (_, index) => index * size);
  return starts.map((start) => Array.from({ length: Math.min(size, total - start) }, (_, index) => start + index));
}

function now() {
  return (performance.timeOrigin + performance.now()) / 1000;
}
