/** Running a whole group of failures again, after how many that are was counted. */

import { changed, Rate } from "../../actions";
import { api, take } from "../../api/client";
import { plural, span, verb } from "../../format";
import { useResource } from "../../resource";
import { say } from "../../toasts";
import { FormDialog } from "../../ui/dialog";
import { Unread } from "../../ui/listed";

interface Chosen {
  id: string;
  type: string;
  error: string;
  message: string;
}

export function RedriveDialog({ group, close }: { group: Chosen; close: () => void }) {
  const params = { path: { group_id: group.id } };
  const dry = useResource(`redrive ${group.id}`, (signal) =>
    take(api.POST("/api/errors/{group_id}/redrive", { params, body: { dryRun: true }, signal })),
  );
  const send = async (form: FormData) => {
    const rate = Number(form.get("rate"));
    const body = rate > 0 ? { rate } : {};
    const done = await take(api.POST("/api/errors/{group_id}/redrive", { params, body }));
    const told = `${plural(done.changed, "task")} ${verb(done.changed, "was", "were")} requeued`;
    say(rate > 0 ? `${told}; the last is due in ${span((done.changed - 1) / rate)}.` : `${told}.`);
    changed();
  };
  const number = dry.data?.changed;
  return (
    <FormDialog title="Run this group again?" verb="Run again" off={!number} onClose={close} send={send}>
      <p class="redrive-what">
        <strong>{group.error}</strong> in {group.type}
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
      <Rate />
    </FormDialog>
  );
}
