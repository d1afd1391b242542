// The worker of this client that clients/conformance.py tries.
//   node worker.mjs FOLDER-OF-THE-BUILT-CLIENT
import { pathToFileURL } from "node:url";

const { NonRetryable, RetryLater, Snooze, Worker } = await import(pathToFileURL(`${process.argv[2]}/index.js`).href);
const rest = (seconds) => new Promise((rested) => setTimeout(rested, seconds * 1000));

const worker = new Worker({
  url: process.env.TASKLIB_URL,
  token: process.env.TASKLIB_TOKEN,
  workerId: process.env.TASKLIB_WORKER_ID,
  timeoutSeconds: Number(process.env.TASKLIB_WORKER_TIMEOUT_SECONDS),
  concurrency: 2,
  waitSeconds: 2,
  log: (line) => console.error(line),
  handlers: {
    echo: (payload) => payload,
    fail: ({ message }) => {
      throw new Error(message);
    },
    reject: ({ message }) => {
      throw new NonRetryable(message);
    },
    later: ({ seconds }) => {
      throw new RetryLater(seconds);
    },
    snooze: ({ seconds }) => {
      throw new Snooze(seconds);
    },
    work: async ({ seconds }, { task, progress, log }) => {
      await log("begun", "WARNING");
      await progress(0.5, "half of it");
      await rest(seconds);
      return { worker: process.env.TASKLIB_WORKER_ID, attempt: task.attempt };
    },
    draw: async ({ event }, { workflow }) => {
      const drawn = await workflow.step("draw", () => Math.random());
      return [drawn, await workflow.wait("told", [event])];
    },
    change: async ({ event }, { task, workflow }) => {
      if (task.steps.length) return workflow.sleep("same", new Date());
      await workflow.step("same", () => 1);
      return workflow.wait("told", [event]);
    },
    fan: async ({ payloads }, { workflow }) => {
      const children = await workflow.children("all", "echo", payloads);
      return children.map(({ result }) => result);
    },
    wait: (_, { signal }) => new Promise((_done, ended) => signal.addEventListener("abort", () => ended(signal.reason))),
  },
});
process.on("SIGTERM", () => worker.stop());
await worker.run();
