/** Errors: failures that are alike stand together, with what they have in common and a way to run them again. */

import { actOnMatching } from "../actions";
import { api, take, type Task } from "../api/client";
import { lastLine, plural } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { can } from "../session";
import { Ago, Button, Empty, Loading, PageHead, Trouble } from "../ui/basic";

interface Group {
  key: string;
  type: string;
  exception: string;
  message: string;
  count: number;
  first: string;
  last: string;
  example: string;
}

const LOOKED_AT = 100;

export function ErrorsPage() {
  const failures = useResource(
    "failures",
    (signal) => take(api.GET("/api/tasks", { params: { query: { status: ["failed", "buried"], limit: LOOKED_AT, total: false } }, signal })),
    { live: true },
  );
  const groups = grouped(failures.data?.tasks ?? []);
  return (
    <>
      <PageHead title="Errors">
        {groups.length > 0 && <span class="soft">of the newest {plural(failures.data?.tasks.length ?? 0, "failure")}</span>}
      </PageHead>
      {failures.problem && <Trouble problem={failures.problem} retry={failures.refresh} />}
      {failures.loading ? (
        <Loading />
      ) : groups.length ? (
        <ul class="groups">
          {groups.map((group) => (
            <GroupCard key={group.key} group={group} />
          ))}
        </ul>
      ) : (
        !failures.problem && (
          <Empty title="No failures.">
            <p>Tasks that fail are grouped here by what went wrong.</p>
          </Empty>
        )
      )}
    </>
  );
}

function grouped(tasks: Task[]): Group[] {
  const groups = new Map<string, Group>();
  for (const task of tasks) {
    const message = lastLine(task.error ?? "");
    const exception = /^[\w.]+/.exec(message)?.[0] ?? "Error";
    const key = `${task.type} ${exception}`;
    const at = task.completedAt ?? task.updatedAt;
    const group = groups.get(key);
    if (!group) groups.set(key, { key, type: task.type, exception, message, count: 1, first: at, last: at, example: task.id });
    else {
      group.count++;
      if (at < group.first) group.first = at;
      if (at > group.last) group.last = at;
    }
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

function GroupCard({ group }: { group: Group }) {
  return (
    <li class="panel group" data-row>
      <div class="group-count">{group.count}</div>
      <div class="group-what">
        <a class="row-link" href={href("/tasks", { type: group.type, status: ["failed", "buried"], search: group.exception })}>
          {group.exception}
        </a>{" "}
        in <a href={href("/tasks", { type: group.type })}>{group.type}</a>
        <div class="preview bad">{group.message}</div>
        <div class="hint">
          last <Ago at={group.last} /> · first <Ago at={group.first} /> · <a href={href(`/tasks/${group.example}`)}>an example</a>
        </div>
      </div>
      {can("operate") && (
        <Button
          kind="small"
          onClick={() => actOnMatching("retry", { type: group.type, status: ["failed", "buried"], search: group.exception }, `of type ${group.type} that failed with ${group.exception}`)}
          label={`Retry all ${group.exception} in ${group.type}`}
        >
          Retry all
        </Button>
      )}
    </li>
  );
}
