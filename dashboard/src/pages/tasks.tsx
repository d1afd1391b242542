/** Tasks: which there are, narrowed by a filter that stands in the address, and what can be done to them. */

import { useEffect, useState } from "preact/hooks";
import { ACTIONS, actOnMatching, isPossibleInBulk, VERBS } from "../actions";
import { type Action, api, take, type Task } from "../api/client";
import { count, plural } from "../format";
import { stats } from "../live";
import { href, query, setQuery } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Button, Empty, PageHead } from "../ui/basic";
import { Controls } from "../ui/controls";
import { News, useCalm } from "../ui/calm";
import { Listed } from "../ui/listed";
import { Paced } from "../ui/paced";
import { openSubmit } from "../ui/submit";
import { Views } from "../ui/views";
import { Filters } from "./filters";
import { countFrom, criteria, type Filter, filterOf, isEmpty, listQuery } from "./filter";
import { ScanBar, useScan } from "./scan";
import { type Listed as ListedTask, TaskTable } from "./task_table";
import "../styles/tasks.css";

const SIZE = 50;
/** Milliseconds: the numbers of a large queue are some seconds old, but what happens to its tasks is seen within one. */
const LOOKING = 800;

export function TasksPage() {
  const filter = filterOf(query.value);
  const trail = (query.value.get("at") ?? "").split(".").filter(Boolean);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const wanted = JSON.stringify(filter);
  useEffect(() => setSelected(new Set()), [wanted, trail.join()]);

  const cursor = trail[trail.length - 1];
  const page = useResource(
    `${wanted}@${cursor ?? ""}`,
    (signal) => {
      const query = { ...listQuery(filter), limit: SIZE, total: false, ...(cursor ? { cursor } : {}) };
      return take(api.GET("/api/tasks", { params: { query }, signal }));
    },
    { live: true, every: LOOKING },
  );
  const total = useTotal(filter);
  const newest = page.data?.tasks ?? [];
  const here = `${wanted}@${cursor ?? ""}`;
  const scan = useScan(here, filter, page.data?.nextCursor ?? null, page.data?.looked ?? null, SIZE - newest.length);
  const calm = useCalm(here, newest, idOf, selected.size > 0);
  const known = new Set(newest.map(idOf));
  const tasks = [...useMissing(calm.shown, calm.left), ...scan.found.filter((task) => !known.has(task.id))];
  const next = scan.next;

  return (
    <>
      <PageHead title="Tasks">
        <Controls />
        {can("submit") && (
          <Button kind="primary" onClick={() => openSubmit()}>
            New task
          </Button>
        )}
      </PageHead>
      <Filters filter={filter} />
      <Views />
      <Paced />
      {can("operate") && (
        <BulkBar
          filter={filter}
          selected={selected}
          clear={() => setSelected(new Set())}
          total={page.data && !newest.length && !next ? 0 : total}
        />
      )}
      <ScanBar scan={scan} shown={tasks.length} wanted={SIZE} />
      <Listed framed source={page} some={tasks.length > 0} empty={scan.running ? <Empty title="Nothing yet; the search goes on." /> : <NoTasks filter={filter} trail={trail} next={next} />} rows={10}>
        {calm.frame(
          <>
            <News calm={calm} most={SIZE} />
            <TaskTable tasks={tasks} selected={selected} select={setSelected} />
          </>,
        )}
      </Listed>
      {(tasks.length > 0 || trail.length > 0) && <Pages trail={trail} next={next} shown={tasks.length} total={total} />}
    </>
  );
}

const idOf = (task: Task) => task.id;

/** Tasks of a list that stands still and that are not among the newest any more, as they are now; deleted ones say so. */
function useMissing(tasks: Task[], left: string[]): ListedTask[] {
  const found = useResource(
    left.length ? `left ${left.join()}` : null,
    async (signal) => {
      const query = { id: left, limit: 100, total: false };
      return new Map((await take(api.GET("/api/tasks", { params: { query }, signal }))).tasks.map((task) => [task.id, task]));
    },
    { live: true, every: LOOKING },
  );
  if (!left.length) return tasks;
  const gone = new Set(left);
  return tasks.map((task) => {
    if (!gone.has(task.id)) return task;
    return found.data ? (found.data.get(task.id) ?? { ...task, deleted: true }) : task;
  });
}

/** How many match: from the live numbers where they know, else counted apart so that the rows need not wait. */
function useTotal(filter: Filter): number | null {
  const known = countFrom(stats.value, filter);
  const counted = useResource(
    known === null ? JSON.stringify(filter) : null,
    async (signal) => {
      const query = { ...listQuery(filter), limit: 1, total: true };
      return (await take(api.GET("/api/tasks", { params: { query }, signal }))).total;
    },
    { every: 10_000 },
  );
  return known ?? counted.data;
}

interface BulkProps {
  filter: Filter;
  selected: ReadonlySet<string>;
  clear: () => void;
  total: number | null;
}

function BulkBar({ filter, selected, clear, total }: BulkProps) {
  const some = selected.size > 0;
  // Without a filter there is no "all": nobody changes every task by accident.
  if (!some && (isEmpty(filter) || total === 0)) return null;
  const run = (action: Action) =>
    some
      ? actOnMatching(action, { ids: [...selected] }, `of the ${count(selected.size)} selected`, clear)
      : actOnMatching(action, criteria(filter), "that match the filter");
  return (
    <div class="bulk" role="toolbar" aria-label="Actions on many tasks">
      <span>
        {some ? <strong>{plural(selected.size, "task")} selected</strong> : <>All {total === null ? "tasks" : plural(total, "task")} that match</>}
      </span>
      {ACTIONS.filter((action) => some || isPossibleInBulk(action, filter.statuses)).map((action) => (
        <Button key={action} kind={action === "delete" ? "small danger" : "small"} onClick={() => run(action)}>
          {VERBS[action]} <span class="bulk-which">{some ? "selected" : "all"}</span>
        </Button>
      ))}
      {some && (
        <Button kind="small" onClick={clear}>
          Select none
        </Button>
      )}
    </div>
  );
}

interface PagesProps {
  trail: string[];
  next: string | null;
  shown: number;
  total: number | null;
}

function Pages({ trail, next, shown, total }: PagesProps) {
  const first = trail.length * SIZE;
  return (
    <nav class="pages" aria-label="Pages">
      <Button disabled={!trail.length} onClick={() => setQuery({ at: trail.slice(0, -1).join(".") || null })}>
        ← Newer
      </Button>
      <span class="soft">
        {shown ? `${count(first + 1)}–${count(first + shown)}` : "0"}
        {total !== null && ` of ${count(Math.max(total, first + shown))}`}
      </span>
      <Button disabled={!next} onClick={() => next && setQuery({ at: [...trail, next].join(".") })}>
        Older →
      </Button>
    </nav>
  );
}

function NoTasks({ filter, trail, next }: { filter: Filter; trail: string[]; next: string | null }) {
  if (next) {
    return (
      <Empty title="No match among the newest tasks.">
        <Button onClick={() => setQuery({ at: [...trail, next].join(".") })}>Search further back</Button>
      </Empty>
    );
  }
  if (trail.length) {
    return (
      <Empty title="Nothing more here.">
        <Button onClick={() => setQuery({ at: null })}>Back to the newest</Button>
      </Empty>
    );
  }
  if (!isEmpty(filter)) {
    return (
      <Empty title="No task matches this filter.">
        <a class="button" href={href("/tasks")}>
          Show all tasks
        </a>
      </Empty>
    );
  }
  return (
    <Empty title="No tasks yet.">
      <p>Define one, submit it, and start a worker:</p>
      <pre>{`import tasklib

@tasklib.task
def hello(name: str) -> str:
    return f"Hello {name}"

hello.submit("world")`}</pre>
      <p>
        <code>tasklib worker app.tasks</code>
      </p>
    </Empty>
  );
}
