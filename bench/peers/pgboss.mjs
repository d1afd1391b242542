// pg-boss with batches of 1,000 and its notices of new jobs.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chunks, address, command, count, pace, startReporting, tally, reportLatency, timeCalls } from "./reporting.mjs";

const found = createRequire(process.env.BENCH_NODE + "/").resolve("pg-boss");
const { PgBoss } = await import(pathToFileURL(found));

const boss = new PgBoss({ connectionString: address, useListenNotify: true });
boss.on("error", () => {});
await boss.start();

if (command === "setup") {
  await boss.createQueue("noop", { notify: true });
  await boss.createQueue("timed", { notify: true });
} else if (command === "work") {
  startReporting();
  await boss.work("noop", { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
    async (jobs) => {
      tally.ran += jobs.length;
    });
  await boss.work("timed", { batchSize: 10, pollingIntervalSeconds: 0.5 }, async (jobs) => {
    for (const job of jobs) reportLatency(job.data.t);
  });
} else {
  if (command === "single") await timeCalls((n) => boss.send("noop", { n }), count);
  if (command === "paced") await pace((t) => boss.send("timed", { t }), count);
  if (command === "bulk") {
    await timeCalls(async () => {
      for (const chunk of chunks(count)) await boss.insert("noop", chunk.map((n) => ({ data: { n } })));
    }, 1);
  }
}
if (command !== "work") await boss.stop({ graceful: false });
