// graphile-worker with its local queue and batched completions, as its page on performance says.

import { createRequire } from "node:module";
import { chunks, address, command, count, pace, startReporting, tally, reportLatency, timeCalls } from "./reporting.mjs";

const require = createRequire(process.env.BENCH_NODE + "/");
const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");

const preset = {
  worker: {
    connectionString: address,
    concurrentJobs: 24,
    maxPoolSize: 26,
    localQueue: { size: 2000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};
const logger = new Logger(() => () => {});

if (command === "work") {
  startReporting();
  await run({
    preset,
    logger,
    noHandleSignals: true,
    taskList: {
      noop: async () => {
        tally.ran++;
      },
      timed: async ({ t }) => reportLatency(t),
    },
  });
} else if (command === "setup") {
  await runMigrations({ connectionString: address, logger });
} else {
  const utils = await makeWorkerUtils({ connectionString: address, logger });
  if (command === "single") await timeCalls((n) => utils.addJob("noop", { n }), count);
  if (command === "paced") await pace((t) => utils.addJob("timed", { t }), count);
  if (command === "bulk") {
    await timeCalls(async () => {
      for (const chunk of chunks(count)) {
        await utils.addJobs(chunk.map((n) => ({ identifier: "noop", payload: { n } })));
      }
    }, 1);
  }
  await utils.release();
}
