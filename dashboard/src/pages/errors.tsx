/** Errors: failures that are alike stand together, with what they have in common and a way to run them again. */

import { useState } from "preact/hooks";
import { changed } from "../actions";
import { api, type ErrorGroup, take } from "../api/client";
import { plural, short, verb } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { say } from "../toasts";
import { Ago, Button, Empty, PageHead } from "../ui/basic";
import { FormDialog } from "../ui/dialog";
import { News, useCalm } from "../ui/calm";
import { Listed, Unread } from "../ui/listed";
import { Spark } from "../ui/spark";
import "../styles/errors.css";

const READING = 5000;

export function ErrorsPage() {
  const errors = useResource("errors", (signal) => take(api.GET("/api/errors", { signal })), { live: true, every: READING });
  const [chosen, setChosen] = useState<ErrorGroup | null>(null);
  const newest = errors.data?.groups ?? [];
  const calm = useCalm("errors", newest, (group) => group.id);
  const groups = calm.shown;
  const sum = groups.reduce((total, group) => total + group.count, 0);
  return (
    <>
      <PageHead title="Errors">
        {groups.length > 0 && (
          <span class="soft">
            {plural(sum, "task")} in {plural(groups.length, "group")}
          </span>
        )}
      </PageHead>
      <Listed
        framed
        source={errors}
        some={groups.length > 0}
        empty={
          <Empty title="Nothing has failed for good.">
            <p>Tasks that failed for good are grouped here by exception and function.</p>
          </Empty>
        }
      >
        {calm.frame(
          <>
            <News calm={calm} most={1000} />
            <ul>
              {groups.map((group) => (
                <GroupCard key={group.id} group={group} redrive={() => setChosen(group)} />
              ))}
            </ul>
          </>,
        )}
      </Listed>
      {chosen && (
        <RedriveDialog
          group={chosen}
          close={() => {
            setChosen(null);
            errors.refresh();
          }}
        />
      )}
    </>
  );
}

const exceptionOf = (group: ErrorGroup): string => group.fingerprint?.split(" in ")[0] || "Unknown error";

function GroupCard({ group, redrive }: { group: ErrorGroup; redrive: () => void }) {
  const exception = exceptionOf(group);
  const place = group.fingerprint?.split(" in ")[1];
  const tasks = {
    type: group.type,
    status: ["failed", "buried"],
    ...(group.fingerprint ? { fingerprint: group.fingerprint } : {}),
  };
  return (
    <li class="panel group" data-row>
      <div class="group-count" title={plural(group.count, "task")}>
        {short(group.count)}
      </div>
      <div class="group-what">
        <a class="row-link" href={href("/tasks", tasks)}>
          {exception}
        </a>{" "}
        in <a href={href("/tasks", { type: group.type })}>{group.type}</a>
        {place && <code class="id"> {place}</code>}
        <div class="preview bad">{group.message}</div>
        <div class="hint">
          last <Ago at={group.lastSeen} /> · first <Ago at={group.firstSeen} /> ·{" "}
          <a href={href(`/tasks/${group.exampleId}`)}>latest task</a>
        </div>
      </div>
      <figure class="group-hours">
        <Spark values={group.hours} label={`In the last 24 hours: ${group.hours.reduce((a, b) => a + b, 0)}`} />
        <figcaption class="hint">24 h</figcaption>
      </figure>
      {can("operate") && (
        <Button kind="small" onClick={redrive} label={`Run again: ${exception} in ${group.type}`}>
          Run again …
        </Button>
      )}
    </li>
  );
}

function RedriveDialog({ group, close }: { group: ErrorGroup; close: () => void }) {
  const params = { path: { group_id: group.id } };
  const dry = useResource(`redrive ${group.id}`, (signal) =>
    take(api.POST("/api/errors/{group_id}/redrive", { params, body: { dryRun: true }, signal })),
  );
  const send = async (form: FormData) => {
    const rate = Number(form.get("rate"));
    const body = rate > 0 ? { rate } : {};
    const done = await take(api.POST("/api/errors/{group_id}/redrive", { params, body }));
    say(`${plural(done.changed, "task")} ${verb(done.changed, "was", "were")} retried.`);
    changed();
  };
  const number = dry.data?.changed;
  return (
    <FormDialog title="Run this group again?" verb="Run again" off={!number} onClose={close} send={send}>
      <p class="redrive-what">
        <strong>{exceptionOf(group)}</strong> in {group.type}
      </p>
      <div class="preview bad">{group.message}</div>
      <Unread source={dry} />
      {number === undefined ? (
        <p class="soft">Counting …</p>
      ) : (
        <p>
          <strong class="big">{plural(number, "task")}</strong> of type {group.type} {verb(number, "runs", "run")} again from
          the first attempt.
        </p>
      )}
      <label class="field stacked">
        Max. tasks per second (empty: all at once)
        <input name="rate" type="number" min="0.001" step="any" placeholder="all at once" />
      </label>
    </FormDialog>
  );
}
