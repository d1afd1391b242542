// A flow of pg-boss: jobs, and one that depends on all of them; workers and who submits, in one process.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { address, count, report } from "./reporting.mjs";

const found = createRequire(process.env.BENCH_NODE + "/").resolve("pg-boss");
const { PgBoss } = await import(pathToFileURL(found));

const boss = new PgBoss({ connectionString: address, useListenNotify: true, flowIntervalSeconds: 1 });
boss.on("error", () => {});
await boss.start();
await boss.createQueue("child", { notify: true });
await boss.createQueue("after"); // what is unblocked sends no notice

let ended = () => {};
await boss.work("child", { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }, async () => {});
await boss.work("after", { pollingIntervalSeconds: 0.5 }, async () => ended(performance.now()));

async function fan(children) {
  const refs = Array.from({ length: children }, (_, n) => `c${n}`);
  const at = new Promise((resolve) => (ended = resolve));
  const began = performance.now();
  await boss.flow([
    ...refs.map((ref, n) => ({ ref, name: "child", data: { n } })),
    { ref: "after", name: "after", dependsOn: refs },
  ]);
  return ((await at) - began) / 1000;
}

await fan(1);
report({ seconds: await fan(count) });
await boss.stop({ graceful: false });
process.exit(0);
