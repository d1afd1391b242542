/** Settings: who you are, what is removed by itself, the tokens, and who changed what. */

import { api, take, type Worker } from "../api/client";
import { plural, verb } from "../format";
import { href } from "../router";
import { useResource } from "../resource";
import { can, session, signOut } from "../session";
import { attempt } from "../toasts";
import { Button, Empty, Loading, PageHead, Panel } from "../ui/basic";
import { Listed } from "../ui/listed";
import { Audit } from "./audit";
import { Tokens } from "./tokens";
import "../styles/settings.css";

export function SettingsPage() {
  const who = session.value;
  return (
    <>
      <PageHead title="Settings" />
      <Panel title="You">
        <div class="you">
          {who ? (
            <p>
              <strong>{who.name}</strong> with the role <strong>{who.role}</strong>, which may: {who.permissions.join(", ")}.
            </p>
          ) : (
            <Loading rows={1} />
          )}
          <Button onClick={() => void attempt(signOut)}>Sign out</Button>
        </div>
      </Panel>
      <Retention />
      {who && !can("admin") && (
        <Panel title="Tokens and audit log">
          <Empty title="For administrators.">
            <p>Sign in with an admin token to see them.</p>
          </Empty>
        </Panel>
      )}
      {can("admin") && <Tokens />}
      {can("admin") && <Audit />}
    </>
  );
}

/** What is removed by itself: each worker that lives does it by the rules it was started with, and says which. */
function Retention() {
  const workers = useResource("retention", (signal) => take(api.GET("/api/workers", { signal })), { every: 5000 });
  const groups = [...byRules(workers.data?.workers.filter((each) => each.alive) ?? [])];
  return (
    <Panel title="Retention" aside="Settings of the live workers">
      <Listed
        source={workers}
        some={groups.length > 0}
        empty={<p class="said">No worker is alive, so nothing is removed automatically.</p>}
        rows={1}
      >
        <ul class="said">
          {groups.map(([rules, number]) => (
            <li key={rules}>
              {plural(number, "worker")} {rules ? verb(number, "removes", "remove") : verb(number, "keeps", "keep")} finished tasks
              {rules ? <>: <code>{rules}</code></> : " forever."}
            </li>
          ))}
        </ul>
      </Listed>
      <p class="said soft">
        <code>TASKLIB_RETENTION=&quot;completed=7d, failed=30d&quot;</code> where a worker starts lets it remove old ones; by hand it is
        done on the <a href={href("/")}>overview</a>.
      </p>
    </Panel>
  );
}

function byRules(workers: Worker[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const { retention } of workers) found.set(retention ?? "", (found.get(retention ?? "") ?? 0) + 1);
  return found;
}
