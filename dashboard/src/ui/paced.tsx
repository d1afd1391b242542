/** Retries at a rate that are under way: the due times of the tasks keep the pace, this only tells how far it is. */

import { api, take } from "../api/client";
import { now } from "../clock";
import { count, plural, span, verb } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { Bar } from "./basic";

export function Paced() {
  const found = useResource("paced", (signal) => take(api.GET("/api/tasks/bulk", { signal })), { live: true, every: 5000 });
  const open = found.data?.retries.filter((each) => Date.parse(each.endsAt) > now.value) ?? [];
  return (
    <>
      {open.map((each) => {
        const passed = Math.max(now.value - Date.parse(each.beganAt), 0) / 1000;
        const released = Math.min(each.count, Math.max(each.released, Math.floor(passed * each.rate) + 1));
        return (
          <div key={`${each.beganAt} ${each.by}`} class="scan" role="status">
            <Bar part={released / each.count} label="Retried tasks that have come due" />
            <span>
              Retrying {plural(each.count, "task")}
              {each.type && (
                <>
                  {" "}
                  of <a href={href("/tasks", { type: each.type, status: "delayed" })}>{each.type}</a>
                </>
              )}{" "}
              at {each.rate}/s, by {each.by}: {count(released)} {verb(released, "has", "have")} come due, the last in {span((Date.parse(each.endsAt) - now.value) / 1000)}
            </span>
          </div>
        );
      })}
    </>
  );
}
