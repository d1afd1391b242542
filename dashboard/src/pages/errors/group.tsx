/** One group of errors: since when, how often, the latest traceback, its tasks, and what was decided about it. */

import { useEffect, useState } from "preact/hooks";
import { api, type ErrorGroup, take } from "../../api/client";
import { count, plural } from "../../format";
import { href } from "../../router";
import { useResource } from "../../resource";
import { can } from "../../session";
import { Ago, Badge, Button, Copy, Empty, Fact, Loading, PageHead, Panel, shownStatus, Trouble } from "../../ui/basic";
import { Listed } from "../../ui/listed";
import { Spark } from "../../ui/spark";
import { Table } from "../../ui/table";
import { Trace } from "../../ui/trace";
import { exceptionOf, MarkButtons, StatusMark } from "./marks";
import { RedriveDialog } from "./redrive";
import "../../styles/errors.css";
import "../../styles/task.css";

const READING = 5000;

export function ErrorPage({ id }: { id: string }) {
  const found = useResource(
    `error ${id}`,
    (signal) => take(api.GET("/api/errors/{group_id}", { params: { path: { group_id: id } }, signal })),
    { live: true, every: READING },
  );
  if (found.problem?.status === 404) {
    return (
      <>
        <PageHead title="Error" />
        <Empty title="No task fails in this way.">
          <p>They were retried, deleted or cleaned up.</p>
          <a class="button" href={href("/errors")}>
            All errors
          </a>
        </Empty>
      </>
    );
  }
  if (found.data) return <Shown group={found.data} done={found.refresh} />;
  return (
    <>
      <PageHead title="Error" />
      {found.problem ? <Trouble problem={found.problem} retry={found.refresh} /> : <Loading framed />}
    </>
  );
}

function Shown({ group, done }: { group: ErrorGroup; done: () => void }) {
  const [asking, setAsking] = useState(false);
  const exception = exceptionOf(group);
  useEffect(() => {
    document.title = `${exception} in ${group.type} · tasklib`;
  }, [exception, group.type]);
  return (
    <>
      <div class="page-head">
        <div>
          <p class="crumbs">
            <a href={href("/errors")}>Errors</a> / <a href={href("/tasks", { type: group.type })}>{group.type}</a>
          </p>
          <h1>
            {exception} <StatusMark group={group} />
          </h1>
          <p class="id-line">
            <code>{group.fingerprint}</code>
          </p>
        </div>
        {can("operate") && (
          <div class="page-actions">
            <Button kind="primary" onClick={() => setAsking(true)}>
              Run again …
            </Button>
            <MarkButtons group={group} done={done} />
          </div>
        )}
      </div>
      <dl class="strip">
        <Fact name="Tasks">{count(group.count)}</Fact>
        <Fact name="First">
          <Ago at={group.firstSeen} />
        </Fact>
        <Fact name="Last">
          <Ago at={group.lastSeen} />
        </Fact>
        <Fact name="Last 24 hours">
          <Spark values={group.hours} label={`In the last 24 hours: ${group.hours.reduce((a, b) => a + b, 0)}`} />
        </Fact>
        {group.markedAt && (
          <Fact name={group.status === "muted" ? "Muted" : "Resolved"}>
            <Ago at={group.markedAt} />
            {group.markedBy && ` by ${group.markedBy}`}
          </Fact>
        )}
      </dl>
      <Latest group={group} />
      <Tasks group={group} />
      {asking && (
        <RedriveDialog
          group={{ id: group.id, type: group.type, error: exception, message: group.message }}
          close={() => (setAsking(false), done())}
        />
      )}
    </>
  );
}

function Latest({ group }: { group: ErrorGroup }) {
  const id = group.exampleId;
  const task = useResource(`latest ${id}`, (signal) => take(api.GET("/api/tasks/{task_id}", { params: { path: { task_id: id } }, signal })));
  const error = task.data?.error ?? group.message;
  return (
    <Panel title="Latest traceback" class="failure" aside={<Copy text={error} label="Copy the error" />}>
      {task.loading ? <Loading rows={3} /> : <Trace error={error} />}
    </Panel>
  );
}

function Tasks({ group }: { group: ErrorGroup }) {
  const filter = { type: group.type, status: ["failed" as const, "buried" as const], fingerprint: group.fingerprint ?? "" };
  const found = useResource(
    `tasks of ${group.id}`,
    (signal) => take(api.GET("/api/tasks", { params: { query: { ...filter, limit: 20, total: false } }, signal })),
    { live: true },
  );
  const tasks = found.data?.tasks ?? [];
  const all = href("/tasks", { ...filter, fingerprint: group.fingerprint ?? undefined });
  return (
    <Panel title="Latest tasks" aside={<a href={all}>All {plural(group.count, "task")}</a>}>
      <Listed source={found} some={tasks.length > 0} empty={<Empty title="None of them is there any more." />}>
        <Table label="Latest tasks of this error" columns={["Task", "Status", "Failed", { name: "Attempts", number: true }, "Error"]}>
          {tasks.map((task) => (
            <tr key={task.id} data-row>
              <td class="which">
                <a class="row-link" href={href(`/tasks/${task.id}`)}>
                  <code class="id">{task.id.slice(-8)}</code>
                </a>
              </td>
              <td>
                <Badge status={shownStatus(task)} />
              </td>
              <td>
                <Ago at={task.completedAt} />
              </td>
              <td class="number">{task.attempts}</td>
              <td>
                <span class="preview">{(task.error ?? "").trim().split("\n").pop()}</span>
              </td>
            </tr>
          ))}
        </Table>
      </Listed>
    </Panel>
  );
}
