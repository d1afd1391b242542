// A flow of BullMQ: a parent with children, each on a queue of its own; workers and who submits, in one process.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { address, count, report } from "./reporting.mjs";

const found = createRequire(process.env.BENCH_NODE + "/").resolve("bullmq");
const { FlowProducer, Worker } = await import(pathToFileURL(found));

const { hostname, port } = new URL(address);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
let ended = () => {};
new Worker("child", async (job) => job.data.n, { connection, concurrency: 100 });
new Worker("after", async () => ended(performance.now()), { connection });
const producer = new FlowProducer({ connection });

async function fan(children) {
  const at = new Promise((resolve) => (ended = resolve));
  const began = performance.now();
  await producer.add({
    name: "after",
    queueName: "after",
    children: Array.from({ length: children }, (_, n) => ({ name: "child", queueName: "child", data: { n } })),
  });
  return ((await at) - began) / 1000;
}

await fan(1);
report({ seconds: await fan(count) });
process.exit(0);
