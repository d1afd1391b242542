// A worker without Python: claims tasks over HTTP, runs them, and ends each attempt under its fencing token.
//   tasklib serve &    node examples/http_worker.mjs http://localhost:8000 [token]
const [service, token] = process.argv.slice(2);
const handlers = {
  shout: async ({ text }) => text.toUpperCase(),
  divide: async ({ a, b }) => (b === 0 ? Promise.reject(new Error("cannot divide by zero")) : a / b),
};
async function send(path, body, method = "POST") {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(service + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.status === 204 ? null : answer.json();
}
const me = await send("/api/workers", { workerId: `js-${process.pid}`, types: Object.keys(handlers) });
const beating = setInterval(() => send(`/api/workers/${me.instance}/heartbeat`).catch(console.error), me.heartbeatSeconds * 1000);
let running = true;
process.on("SIGTERM", () => (running = false));
while (running) {
  const { tasks } = await send(`/api/workers/${me.instance}/claim`, { limit: 1, waitSeconds: 2 });
  for (const { id, type, payload, version } of tasks) {
    await send(`/api/tasks/${id}/progress`, { version, progress: 0, message: "begun" });
    const [ending, said] = await handlers[type](payload).then(
      (result) => ["complete", { result }],
      (error) => ["fail", { error: String(error.stack) }],
    );
    await send(`/api/tasks/${id}/${ending}`, { version, ...said });
  }
}
clearInterval(beating);
await send(`/api/workers/${me.instance}`, undefined, "DELETE"); // what it holds goes back, and no attempt is spent
