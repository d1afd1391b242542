// A worker without Python: claims tasks over HTTP, runs them, and ends each attempt under its fencing token.
//   tasklib serve &    node examples/http_worker.mjs http://localhost:8000 [token]
const [service, token] = process.argv.slice(2);
const handlers = {
  shout: async ({ text }) => text.toUpperCase(),
  divide: async ({ a, b }) => (b === 0 ? Promise.reject(new Error("cannot divide by zero")) : a / b),
};
let running = true;
process.on("SIGTERM", () => (running = false));
const rest = (seconds) => new Promise((rested) => setTimeout(rested, seconds * 1000));

async function send(path, body, method = "POST") {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(service + path, { method, headers, body: body && JSON.stringify(body) });
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  throw Object.assign(new Error(`${path}: ${answer.status} ${await answer.text()}`), { status: answer.status });
}
// Until there is an answer: the service may be away for a while, and an ending that is sent twice is one ending.
async function insist(path, body) {
  for (;;) {
    try {
      return await send(path, body);
    } catch (error) {
      if (error.status < 500 || !running) throw error;
      console.error(String(error));
      await rest(1);
    }
  }
}
const register = () => insist("/api/workers", { workerId: `js-${process.pid}`, types: Object.keys(handlers) });
let me = await register();
const beat = () => send(`/api/workers/${me.instance}/heartbeat`);
const beating = setInterval(() => beat().catch((error) => console.error(String(error))), me.heartbeatSeconds * 1000);

async function claim() {
  const waitSeconds = 2;
  try {
    return (await send(`/api/workers/${me.instance}/claim`, { limit: 1, waitSeconds })).tasks;
  } catch (error) {
    console.error(String(error));
    if (error.status === 404) me = await register(); // it was silent for so long that it counts as gone
    else await rest(waitSeconds + 1);
    // What the claim took is not known here. Nothing is held between two claims, so all that is listed goes back.
    const { tasks } = await insist(`/api/workers/${me.instance}/heartbeat`);
    for (const { id, version } of tasks) await insist(`/api/tasks/${id}/release`, { version });
    return [];
  }
}
async function run({ id, type, payload, version }) {
  await insist(`/api/tasks/${id}/progress`, { version, progress: 0, message: "begun" });
  const [ending, said] = await handlers[type](payload).then(
    (result) => ["complete", { result }],
    (error) => ["fail", { error: String(error.stack) }],
  );
  try {
    await insist(`/api/tasks/${id}/${ending}`, { version, ...said });
  } catch (error) {
    if (![400, 413].includes(error.status)) throw error;
    await insist(`/api/tasks/${id}/fail`, { version, error: String(error), retry: false }); // a result nobody can store
  }
}
while (running) {
  try {
    for (const task of await claim()) await run(task);
  } catch (error) {
    console.error(String(error)); // as 409: the task has timed out, or was given to somebody else
  }
}
clearInterval(beating);
await send(`/api/workers/${me.instance}`, undefined, "DELETE"); // what it holds goes back, and no attempt is spent
