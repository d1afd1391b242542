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
import { Budgets } from "./budgets";
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
              <strong>{who.name}</strong> with the role <strong>{who.role}</strong>, which may {mayOf(who.permissions)}.
            </p>
          ) : (
            <Loading rows={1} />
          )}
          {/* Who came in without a token has nothing to sign out of. */}
          {who && !["local", "anonymous"].includes(who.name) && <Button onClick={() => void attempt(signOut)}>Sign out</Button>}
        </div>
      </Panel>
      <Retention />
      <Budgets />
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

/** What each permission allows, in the order of how much that is. */
const ALLOWED: [string, string][] = [
  ["read", "see everything"],
  ["submit", "submit tasks"],
  ["operate", "change tasks, types and schedules"],
  ["emit", "answer questions"],
  ["work", "run tasks as a worker"],
];

function mayOf(permissions: string[]): string {
  if (permissions.includes("admin")) return "do everything";
  const words = ALLOWED.filter(([name]) => permissions.includes(name)).map(([, word]) => word);
  return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}` : (words[0] ?? "look at single tasks");
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
        To remove old tasks automatically, start workers with <code>TASKLIB_RETENTION=&quot;completed=7d, failed=30d&quot;</code>. To remove
        them once, use <a href={href("/")}>Clean up</a> on the overview.
      </p>
    </Panel>
  );
}

function byRules(workers: Worker[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const { retention } of workers) found.set(retention ?? "", (found.get(retention ?? "") ?? 0) + 1);
  return found;
}
