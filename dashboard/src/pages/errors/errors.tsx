/** Errors: failures that are alike stand together, with what they have in common and a way to run them again. */

import { useState } from "preact/hooks";
import { api, type ErrorGroup, take } from "../../api/client";
import { plural, short } from "../../format";
import { href, query, setQuery } from "../../router";
import { useResource } from "../../resource";
import { can } from "../../session";
import { Ago, Button, Empty, PageHead } from "../../ui/basic";
import { News, useCalm } from "../../ui/calm";
import { OrderChoice } from "../../ui/choices";
import { Listed } from "../../ui/listed";
import { Segments } from "../../ui/segments";
import { Spark } from "../../ui/spark";
import { exceptionOf, MarkButtons, StatusMark } from "./marks";
import { RedriveDialog } from "./redrive";
import { Paced } from "../../ui/paced";
import "../../styles/errors.css";

const READING = 5000;

export function ErrorsPage() {
  const errors = useResource("errors", (signal) => take(api.GET("/api/errors", { signal })), { live: true, every: READING });
  const [chosen, setChosen] = useState<ErrorGroup | null>(null);
  const wanted = (query.value.get("search") ?? "").toLowerCase();
  const order = query.value.get("sort") ?? "";
  const status = STATUSES.some(([key]) => key === query.value.get("status")) ? query.value.get("status")! : "open";
  const everything = errors.data?.groups ?? [];
  const all = everything.filter((group) => shownAs(group) === status);
  // What is muted or resolved leaves the list at once, also while its order stands still.
  const calm = useCalm(`errors ${wanted} ${order} ${status}`, sorted(everything.filter((group) => textOf(group).includes(wanted)), order), (group) => group.id);
  const groups = calm.shown.filter((group) => shownAs(group) === status);
  const sum = groups.reduce((total, group) => total + group.count, 0);
  return (
    <>
      <PageHead title="Errors">
        {groups.length > 0 && (
          <span class="soft">
            {plural(sum, "task")} in {plural(groups.length, "group")}
            {groups.length < all.length && ` of ${all.length}`}
          </span>
        )}
      </PageHead>
      <Paced />
      {everything.length > 0 && <Narrow search={query.value.get("search") ?? ""} order={order} status={status} groups={everything} />}
      <Listed
        framed
        source={errors}
        some={groups.length > 0}
        empty={
          all.length ? (
            <Empty title="No group matches this search." />
          ) : everything.length ? (
            <Empty title={`No group of errors is ${status}.`} />
          ) : (
            <Empty title="Nothing has failed for good.">
              <p>Tasks that failed for good are grouped here by exception and function.</p>
            </Empty>
          )
        }
      >
        {calm.frame(
          <>
            <News calm={calm} most={1000} />
            <ul>
              {groups.map((group) => (
                <GroupCard key={group.id} group={group} redrive={() => setChosen(group)} done={errors.refresh} />
              ))}
            </ul>
          </>,
        )}
      </Listed>
      {chosen && (
        <RedriveDialog
          group={{ id: chosen.id, type: chosen.type, error: exceptionOf(chosen), message: chosen.message }}
          close={() => {
            setChosen(null);
            errors.refresh();
          }}
        />
      )}
    </>
  );
}

const textOf = (group: ErrorGroup) => `${group.type} ${group.fingerprint ?? ""} ${group.message}`.toLowerCase();
const ORDERS: [string, string][] = [
  ["", "Latest first"],
  ["count", "Most tasks first"],
  ["new", "Newest group first"],
];

function sorted(groups: ErrorGroup[], order: string): ErrorGroup[] {
  if (order === "count") return [...groups].sort((a, b) => b.count - a.count);
  if (order === "new") return [...groups].sort((a, b) => b.firstSeen.localeCompare(a.firstSeen));
  return groups;
}

const STATUSES: [string, string][] = [
  ["open", "Open"],
  ["muted", "Muted"],
  ["resolved", "Resolved"],
];
/** What came again after it was resolved is open. */
const shownAs = (group: ErrorGroup): string => (group.status === "reopened" ? "open" : group.status);

interface NarrowProps {
  search: string;
  order: string;
  status: string;
  groups: ErrorGroup[];
}

function Narrow({ search, order, status, groups }: NarrowProps) {
  const options = STATUSES.map(([key, name]): [string, string] => [key, `${name} ${groups.filter((group) => shownAs(group) === key).length}`]);
  return (
    <search class="filters">
      <div class="range-bar">
        <Segments name="status" label="Which groups" chosen={status} options={options} />
        <label class="field">
          <span class="unseen">Search in errors</span>
          <input type="search" data-search placeholder="Search errors   /" value={search} onInput={(event) => setQuery({ search: event.currentTarget.value || null }, true)} />
        </label>
        <OrderChoice order={order} orders={ORDERS} />
      </div>
    </search>
  );
}

function GroupCard({ group, redrive, done }: { group: ErrorGroup; redrive: () => void; done: () => void }) {
  const exception = exceptionOf(group);
  const place = group.fingerprint?.split(" in ")[1];
  return (
    <li class="panel group" data-row>
      <div class="group-count" title={plural(group.count, "task")}>
        {short(group.count)}
      </div>
      <div class="group-what">
        <a class="row-link" href={href(`/errors/${group.id}`)}>
          {exception}
        </a>{" "}
        in <a href={href("/tasks", { type: group.type })}>{group.type}</a>
        {place && <code class="id"> {place}</code>} <StatusMark group={group} />
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
        <div class="group-acts">
          <Button kind="small" onClick={redrive} label={`Run again: ${exception} in ${group.type}`}>
            Run again …
          </Button>
          <MarkButtons group={group} done={done} />
        </div>
      )}
    </li>
  );
}
