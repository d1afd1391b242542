/** Workers: who is alive, how they are, what each runs now, and who has gone silent. */

import { useState } from "preact/hooks";
import { api, type EndedWorker, take, type Task, type Worker } from "../api/client";
import { now } from "../clock";
import { bytes, count, plural, seconds, shortId, span } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { Ago, Bar, Button, Empty, Fact, PageHead, Panel } from "../ui/basic";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";
import "../styles/workers.css";

export function WorkersPage() {
  const workers = useResource("workers", (signal) => take(api.GET("/api/workers", { signal })), { live: true, every: 2000 });
  const running = useResource("running", allRunning, { live: true, every: 2000 });
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
      <Listed
        framed
        source={workers}
        some={known.length > 0}
        empty={
          <Empty title="No workers yet.">
            <p>Start one in your project:</p>
            <pre>tasklib worker app.tasks</pre>
          </Empty>
        }
      >
        {known.map((worker) => (
          <WorkerCard
            key={worker.instance}
            worker={worker}
            tasks={running.data?.filter((task) => task.workerId === worker.workerId) ?? []}
          />
        ))}
      </Listed>
      <Ended ended={workers.data?.ended ?? []} />
    </>
  );
}

/** Pages of running tasks that are read at most; what is left out is counted. */
const PAGES = 10;

async function allRunning(signal: AbortSignal): Promise<Task[]> {
  const found: Task[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < PAGES; page++) {
    const query = { status: ["processing" as const], limit: 100, total: false, ...(cursor ? { cursor } : {}) };
    const part: { tasks: Task[]; nextCursor: string | null } = await take(api.GET("/api/tasks", { params: { query }, signal }));
    found.push(...part.tasks);
    cursor = part.nextCursor;
    if (!cursor) break;
  }
  return found;
}

function Ended({ ended }: { ended: EndedWorker[] }) {
  if (!ended.length) return null;
  return (
    <Panel title="Ended in the last 24 hours">
      <Table label="Workers that ended" columns={["Worker", "How", "When", { name: "Tasks taken back", number: true }, "Release", "Was up"]}>
        {ended.map((worker) => (
          <tr key={worker.instance}>
            <td class="long">
              {worker.workerId}
              <div class="hint">
                {worker.host} · pid {worker.pid}
              </div>
            </td>
            <td class="half" data-label="How">
              <span class={worker.ending === "lost" ? "badge failed" : "badge cancelled"}>{worker.ending === "lost" ? "Lost" : "Stopped"}</span>
            </td>
            <td class="half" data-label="When">
              <Ago at={worker.endedAt} />
            </td>
            <td class="number half" data-label="Tasks taken back">
              {worker.tasks ? count(worker.tasks) : <span class="soft">0</span>}
            </td>
            <td class="half" data-label="Release">{worker.release ?? <span class="soft">–</span>}</td>
            <td class="half" data-label="Was up">{span(Math.max(seconds(worker.startedAt, worker.heartbeatAt), 0))}</td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}

function WorkerCard({ worker, tasks }: { worker: Worker; tasks: Task[] }) {
  return (
    <section class={worker.alive ? "panel worker" : "panel worker gone"} data-row>
      <header>
        <h2>
          <span class={worker.alive ? "badge completed" : "badge failed"}>{worker.alive ? "Alive" : "Silent"}</span>{" "}
          <span class="row-link" tabIndex={-1}>
            {worker.workerId}
          </span>
        </h2>
        <div class="aside">
          {worker.host} · pid {worker.pid}
          {worker.release && ` · release ${worker.release}`}
        </div>
      </header>
      <Vitals worker={worker} />
      {tasks.length > 0 && <Running tasks={tasks} all={worker.running} />}
      <p class="tag-list">
        <span class="soft">Handles</span>
        {worker.types.slice(0, 30).map((type) => (
          <a key={type} class="tag" href={href("/tasks", { type })}>
            {type}
          </a>
        ))}
        {worker.types.length > 30 && <span class="soft">and {worker.types.length - 30} more</span>}
      </p>
    </section>
  );
}

/** How it said it was, with its last heartbeat. */
function Vitals({ worker }: { worker: Worker }) {
  const { running, concurrency, memoryBytes, stuckThreads } = worker;
  return (
    <dl class="strip vitals">
      <Fact name="Running">
        {running} of {concurrency}{" "}
        <Bar part={running / Math.max(concurrency, 1)} label={`Slots of ${worker.workerId} in use`} />
      </Fact>
      <Fact name="Last heartbeat">
        <span class={worker.alive ? undefined : "late"}>
          <Ago at={worker.heartbeatAt} />
        </span>
      </Fact>
      <Fact name="Memory">{memoryBytes === null ? "–" : bytes(memoryBytes)}</Fact>
      <Fact name="Stuck threads">
        <span class={stuckThreads ? "late" : undefined} title="Threads that are stuck in timed-out tasks">
          {stuckThreads}
        </span>
      </Fact>
      <Fact name="Up">{span(Math.max(seconds(worker.startedAt, now.value), 0))}</Fact>
    </dl>
  );
}

const FEW = 12;

function Running({ tasks, all }: { tasks: Task[]; all: number }) {
  const [open, setOpen] = useState(false);
  const shown = open ? tasks : tasks.slice(0, FEW);
  const more = Math.max(all, tasks.length) - shown.length;
  return (
    <ul class="running">
      {shown.map((task) => (
        <li key={task.id}>
          <a href={href(`/tasks/${task.id}`)}>
            {task.type} <code class="id">{shortId(task.id)}</code>
          </a>
          <span class="number soft">{task.lastAttemptAt && span(Math.max(seconds(task.lastAttemptAt, now.value), 0))}</span>
          <span class="running-how">
            {task.progress !== null && <Bar part={task.progress} label={`Progress of ${task.type}`} />}
            <span class="preview">{task.progressMessage}</span>
          </span>
        </li>
      ))}
      {more > 0 && (
        <li>
          {shown.length < tasks.length ? (
            <Button kind="plain" onClick={() => setOpen(true)}>
              Show {plural(tasks.length - shown.length, "more task")}
            </Button>
          ) : (
            <span class="soft">and {count(more)} more</span>
          )}
        </li>
      )}
    </ul>
  );
}
