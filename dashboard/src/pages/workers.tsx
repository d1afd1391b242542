/** Workers: who is alive, what each runs now, and who has gone silent. */

import { api, take, type Task, type Worker } from "../api/client";
import { now } from "../clock";
import { plural, seconds, shortId, span } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { Ago, Bar, Empty, Loading, PageHead, Trouble } from "../ui/basic";

export function WorkersPage() {
  const workers = useResource("workers", (signal) => take(api.GET("/api/workers", { signal })), { live: true, every: 2000 });
  const running = useResource(
    "running",
    (signal) => take(api.GET("/api/tasks", { params: { query: { status: ["processing"], limit: 100, total: false } }, signal })),
    { live: true, every: 2000 },
  );
  const known = workers.data?.workers ?? [];
  const alive = known.filter((worker) => worker.alive);
  const slots = alive.reduce((sum, worker) => sum + worker.concurrency, 0);
  const taken = alive.reduce((sum, worker) => sum + worker.running, 0);
  return (
    <>
      <PageHead title="Workers">
        {alive.length > 0 && (
          <span class="soft">
            {plural(alive.length, "worker")} alive · {taken} of {plural(slots, "slot")} in use
          </span>
        )}
      </PageHead>
      {workers.problem && <Trouble problem={workers.problem} retry={workers.refresh} />}
      {workers.loading ? (
        <Loading />
      ) : known.length ? (
        <div class="worker-list">
          {known.map((worker) => (
            <WorkerCard
              key={worker.instance}
              worker={worker}
              tasks={running.data?.tasks.filter((task) => task.workerId === worker.workerId) ?? []}
            />
          ))}
        </div>
      ) : (
        !workers.problem && (
          <Empty title="No worker has ever been here.">
            <p>Start one where your code is:</p>
            <pre>tasklib worker app.tasks</pre>
          </Empty>
        )
      )}
    </>
  );
}

function WorkerCard({ worker, tasks }: { worker: Worker; tasks: Task[] }) {
  const silent = seconds(worker.heartbeatAt, now.value);
  return (
    <section class={worker.alive ? "panel worker" : "panel worker gone"} data-row>
      <header>
        <h2>
          <span class={worker.alive ? "alive yes" : "alive no"}>{worker.alive ? "alive" : "silent"}</span>{" "}
          <span class="row-link" tabIndex={-1}>
            {worker.workerId}
          </span>
        </h2>
        <div class="aside">
          {worker.host} · pid {worker.pid} · up <Up since={worker.startedAt} />
        </div>
      </header>
      <div class="worker-body">
        <div class="worker-load">
          <Bar part={worker.running / Math.max(worker.concurrency, 1)} label={`Slots of ${worker.workerId} in use`} />
          <span>
            {worker.running} / {worker.concurrency} running
          </span>
          <span class={worker.alive ? "soft" : "late"}>
            heartbeat {worker.alive ? <>{span(Math.max(silent, 0))} ago</> : <Ago at={worker.heartbeatAt} />}
          </span>
        </div>
        {tasks.length > 0 && (
          <ul class="running">
            {tasks.map((task) => (
              <li key={task.id}>
                <a href={href(`/tasks/${task.id}`)}>
                  {task.type} <code class="id">{shortId(task.id)}</code>
                </a>
                {task.progress !== null && <Bar part={task.progress} label={`Progress of ${task.type}`} />}
                <span class="soft">{task.lastAttemptAt && span(seconds(task.lastAttemptAt, now.value))}</span>
              </li>
            ))}
          </ul>
        )}
        <p class="tag-list">
          {worker.types.slice(0, 30).map((type) => (
            <a key={type} class="tag" href={href("/tasks", { type })}>
              {type}
            </a>
          ))}
          {worker.types.length > 30 && <span class="soft">and {worker.types.length - 30} more</span>}
        </p>
      </div>
    </section>
  );
}

function Up({ since }: { since: string }) {
  return <time dateTime={since}>{span(Math.max(seconds(since, now.value), 0))}</time>;
}
