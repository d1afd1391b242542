/** What was decided about a group of errors, and deciding it. */

import { changed } from "../../actions";
import { api, type ErrorGroup, take } from "../../api/client";
import { now } from "../../clock";
import { absolute } from "../../format";
import { can } from "../../session";
import { attempt, sayUndoable } from "../../toasts";
import { Button } from "../../ui/basic";

type Wanted = "open" | "muted" | "resolved";

/** Milliseconds for which a group is new. */
const NEW = 3_600_000;

export const exceptionOf = (group: ErrorGroup): string => group.fingerprint?.split(" in ")[0] || "Unknown error";

export function StatusMark({ group }: { group: ErrorGroup }) {
  const by = group.markedAt ? `${absolute(group.markedAt)}${group.markedBy ? ` by ${group.markedBy}` : ""}` : undefined;
  if (group.status === "reopened") return <span class="badge failed" title={`Resolved ${by}`}>Came again</span>;
  if (group.status !== "open") return <span class="badge cancelled" title={by}>{group.status === "muted" ? "Muted" : "Resolved"}</span>;
  return now.value - Date.parse(group.firstSeen) < NEW ? <span class="badge retrying">New</span> : null;
}

async function decide(group: ErrorGroup, status: Wanted): Promise<void> {
  await take(api.POST("/api/errors/{group_id}/status", { params: { path: { group_id: group.id } }, body: { status } }));
  changed();
}

const DONE: Record<Wanted, string> = { open: "is open again", muted: "is muted: findings do not report it", resolved: "is resolved until it comes again" };

export function MarkButtons({ group, done }: { group: ErrorGroup; done: () => void }) {
  if (!can("operate")) return null;
  const before: Wanted = group.status === "reopened" ? "resolved" : group.status;
  const act = (status: Wanted) =>
    void attempt(async () => {
      await decide(group, status);
      sayUndoable(`${exceptionOf(group)} ${DONE[status]}.`, async () => (await decide(group, before), done()));
      done();
    });
  const button = (status: Wanted, text: string) => (
    <Button kind="small" onClick={() => act(status)} label={`${text}: ${exceptionOf(group)} in ${group.type}`}>
      {text}
    </Button>
  );
  return (
    <>
      {(group.status === "open" || group.status === "reopened") && button("resolved", "Resolve")}
      {group.status === "muted" || group.status === "resolved" ? button("open", group.status === "muted" ? "Unmute" : "Reopen") : button("muted", "Mute")}
    </>
  );
}
