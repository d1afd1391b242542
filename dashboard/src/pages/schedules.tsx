/** Schedules: what runs again and again, when next, and how the last run ended. */

import { useState } from "preact/hooks";
import { changed } from "../actions";
import { api, type PutSchedule, type Schedule, take } from "../api/client";
import { now } from "../clock";
import { absolute, span, whenInWords, zoneOf } from "../format";
import { href, query, setQuery } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { attempt, say } from "../toasts";
import { Ago, Badge, Button, Empty, PageHead, shownStatus } from "../ui/basic";
import { confirm } from "../ui/dialog";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";
import { ScheduleDialog } from "./schedule_form";

export function SchedulesPage() {
  const schedules = useResource("schedules", (signal) => take(api.GET("/api/schedules", { signal })), { live: true, every: 5000 });
  const [editing, setEditing] = useState<Schedule | "new" | null>(null);
  const refresh = () => {
    schedules.refresh();
    changed();
  };
  const only = query.value.get("name");
  const known = (schedules.data?.schedules ?? []).filter((each) => !only || each.name === only);
  return (
    <>
      <PageHead title="Schedules">
        {only && <Button onClick={() => setQuery({ name: null })}>All schedules</Button>}
        {can("operate") && (
          <Button kind="primary" onClick={() => setEditing("new")}>
            New schedule
          </Button>
        )}
      </PageHead>
      <Listed framed source={schedules} some={known.length > 0} empty={<NoSchedules />}>
        <Table label="Schedules" columns={["Schedule", "When", "Next runs", "Last run"]} acts={can("operate")} framed>
          {known.map((schedule) => (
            <Row key={schedule.name} schedule={schedule} edit={() => setEditing(schedule)} refresh={refresh} />
          ))}
        </Table>
      </Listed>
      {editing && (
        <ScheduleDialog
          like={editing === "new" ? null : editing}
          close={() => setEditing(null)}
          save={async (name: string, body: PutSchedule) => {
            if (editing === "new") await take(api.POST("/api/schedules", { body: { ...body, name } }));
            else await take(api.PUT("/api/schedules/{name}", { params: { path: { name } }, body }));
            say(`${name} is saved.`);
            refresh();
          }}
        />
      )}
    </>
  );
}

function NoSchedules() {
  return (
    <Empty title="No schedules yet.">
      <p>Declare a schedule on a task, or create one here:</p>
      <pre>{`@queue.schedule(cron="0 9 * * mon-fri", tz="Europe/Paris")
@queue.task
def report() -> None: ...`}</pre>
    </Empty>
  );
}

interface RowProps {
  schedule: Schedule;
  edit: () => void;
  refresh: () => void;
}

function Row({ schedule, edit, refresh }: RowProps) {
  const params = { path: { name: schedule.name } };
  const pause = async (verb: "pause" | "resume") => {
    await attempt(
      () => take(api.POST(`/api/schedules/{name}/${verb}`, { params })),
      verb === "pause" ? `${schedule.name} is paused.` : `${schedule.name} is resumed.`,
    );
    refresh();
  };
  const run = () =>
    attempt(async () => {
      const made = await take(api.POST("/api/schedules/{name}/run", { params }));
      say(`${schedule.name} was started.`, { text: "Open the task", to: href(`/tasks/${made.id}`) });
      refresh();
    });
  const remove = () =>
    confirm({
      title: `Delete the schedule ${schedule.name}?`,
      verb: "Delete 1 schedule",
      danger: true,
      text: { body: <p>It submits no more tasks. Those it has submitted stay.</p> },
      work: async () => {
        await attempt(() => take(api.DELETE("/api/schedules/{name}", { params })), `${schedule.name} was deleted.`);
        refresh();
      },
    });
  return (
    <tr data-row>
      <td>
        <a class="row-link" href={href("/tasks", { type: schedule.type })}>
          {schedule.name}
        </a>{" "}
        {schedule.pausedAt && <span class="badge retrying">Paused</span>} {schedule.declared && <span class="tag">in code</span>}
        <div class="hint">runs {schedule.type}</div>
        {schedule.error && (
          <div class="hint">
            <span class="badge failed">Cannot run</span> {schedule.error}
          </div>
        )}
      </td>
      <td class="half" data-label="When">
        <When schedule={schedule} />
      </td>
      <td class="whole" data-label="Next runs">
        <NextRuns schedule={schedule} />
      </td>
      <td class="half" data-label="Last run">
        <LastRun schedule={schedule} />
      </td>
      {can("operate") && (
        <td class="doing">
          <Button kind="small" onClick={() => void run()} label={`Run now: ${schedule.name}`}>
            Run now
          </Button>
          <Button kind="small" onClick={() => void pause(schedule.pausedAt ? "resume" : "pause")} label={`${schedule.pausedAt ? "Resume" : "Pause"} ${schedule.name}`}>
            {schedule.pausedAt ? "Resume" : "Pause"}
          </Button>
          {!schedule.declared && (
            <>
              <Button kind="small" onClick={edit} label={`Edit ${schedule.name}`}>
                Edit
              </Button>
              <Button kind="small danger" onClick={remove} label={`Delete ${schedule.name}`}>
                Delete
              </Button>
            </>
          )}
        </td>
      )}
    </tr>
  );
}

function When({ schedule }: { schedule: Schedule }) {
  if (schedule.every !== null) return <>every {span(schedule.every)}</>;
  return (
    <>
      <code class="cron">{schedule.cron}</code>
      <div class="hint">{schedule.words ? `${schedule.words}, ${schedule.tz}` : schedule.tz}</div>
    </>
  );
}

/** Milliseconds after which no worker can be on its way to start it. */
const OVERDUE = 60_000;

function NextRuns({ schedule }: { schedule: Schedule }) {
  if (schedule.pausedAt) {
    return (
      <span class="soft">
        paused <Ago at={schedule.pausedAt} />
        {schedule.pausedBy && ` by ${schedule.pausedBy}`}
      </span>
    );
  }
  const [first, ...rest] = schedule.nextRuns;
  if (!first) return <span class="soft">no more runs</span>;
  const overdue = now.value - Date.parse(first) > OVERDUE;
  return (
    <>
      {overdue ? (
        <span class="late">
          was due <Ago at={first} />
        </span>
      ) : (
        <Ago at={first} />
      )}
      <div class="hint" title={schedule.nextRuns.map(absolute).join("\n")}>
        {rest.length > 0 && `then ${rest.slice(0, 2).map(whenInWords).join(" and ")} ${zoneOf(first)}`}
      </div>
    </>
  );
}

function LastRun({ schedule }: { schedule: Schedule }) {
  const id = schedule.lastTaskId;
  const task = useResource(
    id && `last run ${id}`,
    (signal) => take(api.GET("/api/tasks/{task_id}", { params: { path: { task_id: id! } }, signal })),
    { live: true },
  );
  if (!schedule.lastRunAt) return <span class="soft">not yet</span>;
  return (
    <>
      {id && task.data && (
        <a href={href(`/tasks/${id}`)}>
          <Badge status={shownStatus(task.data)} />
        </a>
      )}{" "}
      <Ago at={schedule.lastRunAt} />
    </>
  );
}
