/** The audit log: who changed what, and when. */

import { api, type AuditEntry, take } from "../api/client";
import { jsonPreview, shortId } from "../format";
import { href, query, setQuery } from "../router";
import { useResource } from "../resource";
import { Ago, Button, Empty, Panel } from "../ui/basic";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";

const PAGE = 50;

export function Audit() {
  const before = Number(query.value.get("before")) || undefined;
  const log = useResource(
    `audit ${before ?? ""}`,
    (signal) => take(api.GET("/api/audit", { params: { query: { limit: PAGE, ...(before ? { before } : {}) } }, signal })),
    { live: !before, every: before ? undefined : 5000 },
  );
  const entries = log.data?.entries ?? [];
  const last = entries[entries.length - 1];
  return (
    <Panel title="Audit log" aside="Changes from every front end">
      <Listed source={log} some={entries.length > 0} empty={<Empty title="Nothing was changed yet." />}>
        <Table label="Audit log" columns={["What", "Who", "From", "When"]}>
          {entries.map((entry) => (
            <Row key={entry.seq} entry={entry} />
          ))}
        </Table>
        <nav class="pages inside" aria-label="Pages of the audit log">
          <Button disabled={!before} onClick={() => setQuery({ before: null })}>
            Newest
          </Button>
          <Button disabled={entries.length < PAGE} onClick={() => last && setQuery({ before: String(last.seq) })}>
            Older →
          </Button>
        </nav>
      </Listed>
    </Panel>
  );
}

function Row({ entry }: { entry: AuditEntry }) {
  const isTask = entry.target && /^[0-9a-f-]{36}$/.test(entry.target) && entry.action.includes("task");
  return (
    <tr>
      <td class="long">
        <strong>{entry.action.replaceAll("_", " ")}</strong>{" "}
        {isTask ? <a href={href(`/tasks/${entry.target}`)}>{shortId(entry.target!)}</a> : entry.target}
        <div class="preview">{jsonPreview(entry.detail)}</div>
      </td>
      <td class="half" data-label="Who">
        {entry.actor} <span class="hint">{entry.role}</span>
      </td>
      <td class={`soft ${entry.remote ? "half" : "nothing"}`} data-label="From">
        {entry.remote ?? "–"}
      </td>
      <td class="brief half" data-label="When">
        <Ago at={entry.at} />
      </td>
    </tr>
  );
}
