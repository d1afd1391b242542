/** Settings: who you are, the tokens, and who changed what. */

import { useState } from "preact/hooks";
import { api, type AuditEntry, Problem, take, type Token } from "../api/client";
import { absolute, jsonPreview, shortId } from "../format";
import { href, query, setQuery } from "../router";
import { useResource } from "../resource";
import { can, loadSession, session, signOut } from "../session";
import { attempt } from "../toasts";
import { Ago, Button, Choice, Copy, Empty, Loading, PageHead, Panel, Trouble } from "../ui/basic";
import { confirm, Dialog } from "../ui/dialog";

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

/** What the workers remove by themselves; it is set where they are started. */
function Retention() {
  const control = useResource("retention", (signal) => take(api.GET("/api/control", { signal })));
  return (
    <Panel title="Retention">
      <div class="you">
        {control.problem ? (
          <Trouble problem={control.problem} retry={control.refresh} />
        ) : !control.data ? (
          <Loading rows={1} />
        ) : control.data.retention ? (
          <p>
            Workers remove finished tasks by themselves: <code>{control.data.retention}</code>
          </p>
        ) : (
          <p>
            Finished tasks are kept forever. <code>TASKLIB_RETENTION=&quot;completed=7d, failed=30d&quot;</code> lets workers remove old
            ones; by hand it is done on the <a href={href("/")}>overview</a>.
          </p>
        )}
      </div>
    </Panel>
  );
}

function Tokens() {
  const tokens = useResource("tokens", (signal) => take(api.GET("/api/tokens", { signal })), { every: 10_000 });
  const [making, setMaking] = useState(false);
  const known = tokens.data?.tokens ?? [];
  const revoke = (token: Token) =>
    confirm({
      title: `Revoke the token ${token.name}?`,
      verb: "Revoke 1 token",
      danger: true,
      text: { body: <p>Whoever uses it is refused within a second. It cannot be undone.</p> },
      work: async () => {
        const params = { path: { token_id: token.id } };
        await attempt(() => take(api.DELETE("/api/tokens/{token_id}", { params })), `${token.name} was revoked.`);
        tokens.refresh();
      },
    });
  return (
    <Panel
      title="Tokens"
      aside={
        <Button kind="small" onClick={() => setMaking(true)}>
          New token
        </Button>
      }
    >
      {tokens.problem && <Trouble problem={tokens.problem} retry={tokens.refresh} />}
      {tokens.loading ? (
        <Loading rows={2} />
      ) : known.length ? (
        <div class="scroller" tabIndex={0} role="region" aria-label="Tokens">
          <table class="rows">
            <thead>
              <tr>
                <th>Name</th>
                <th>Role</th>
                <th>Begins</th>
                <th>Last used</th>
                <th>Expires</th>
                <th class="doing">
                  <span class="unseen">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {known.map((token) => (
                <tr key={token.id}>
                  <td>{token.name}</td>
                  <td>{token.role}</td>
                  <td>
                    <code>{token.begins}…</code>
                  </td>
                  <td>
                    <Ago at={token.lastUsedAt} />
                  </td>
                  <td>
                    {token.revokedAt ? (
                      <span class="late">
                        revoked <Ago at={token.revokedAt} />
                      </span>
                    ) : token.expiresAt ? (
                      <Ago at={token.expiresAt} />
                    ) : (
                      "never"
                    )}
                  </td>
                  <td class="doing">
                    {token.valid && (
                      <Button kind="small danger" onClick={() => revoke(token)} label={`Revoke ${token.name}`}>
                        Revoke
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        !tokens.problem && (
          <Empty title="No tokens.">
            {session.value?.name === "local" ? (
              <p>The service is open to this machine, and to nobody else. The first token changes that: from then on everybody needs one.</p>
            ) : (
              <p>Who may come in is decided by the application around this service.</p>
            )}
          </Empty>
        )
      )}
      {making && (
        <TokenDialog
          first={!known.length}
          close={() => {
            setMaking(false);
            tokens.refresh();
          }}
        />
      )}
    </Panel>
  );
}

const ROLES = ["viewer", "operator", "admin", "producer", "worker"];
const DAYS: Record<string, number> = { "30": 30, "90": 90, "365": 365 };

function TokenDialog({ first, close }: { first: boolean; close: () => void }) {
  const [secret, setSecret] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const send = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const days = DAYS[form.get("expires") as string];
    const role = form.get("role") as Token["role"];
    const body = {
      name: (form.get("name") as string).trim(),
      role,
      ...(days ? { expiresAt: new Date(Date.now() + days * 86_400_000).toISOString() } : {}),
    };
    try {
      const made = await take(api.POST("/api/tokens", { body }));
      setSecret(made.secret);
      // The first token closes the door behind us, so we go through it at once.
      if (first && role === "admin") {
        await take(api.POST("/api/session", { headers: { Authorization: `Bearer ${made.secret}` } }));
        await loadSession();
      }
    } catch (error) {
      setProblem(error instanceof Problem ? error.detail : String(error));
    }
  };
  if (secret) {
    return (
      <Dialog title="The new token" onClose={close}>
        <div class="dialog-body">
          <p>It is shown this once, and kept nowhere:</p>
          <p class="secret">
            <code>{secret}</code> <Copy text={secret} label="Copy the token" />
          </p>
        </div>
        <footer>
          <Button kind="primary" onClick={close}>
            I have it
          </Button>
        </footer>
      </Dialog>
    );
  }
  return (
    <Dialog title="New token" onClose={close}>
      <form onSubmit={(event) => void send(event)}>
        <div class="dialog-body">
          {first && <p class="soft">This is the first: from now on everybody needs a token. Make it an admin’s, and you stay signed in.</p>}
          <label class="field stacked">
            Whose it is
            <input name="name" required maxLength={255} autoComplete="off" />
          </label>
          <label class="field stacked">
            Role
            <Choice name="role" chosen={first ? "admin" : "viewer"} options={(first ? ["admin"] : ROLES).map((role) => [role, role])} />
          </label>
          <label class="field stacked">
            Expires
            <Choice name="expires" chosen="" options={[["", "never"], ...Object.keys(DAYS).map((days): [string, string] => [days, `in ${days} days`])]} />
          </label>
          {problem && (
            <p class="trouble" role="alert">
              {problem}
            </p>
          )}
        </div>
        <footer>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit">
            Make it
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

const PAGE = 50;

function Audit() {
  const before = Number(query.value.get("before")) || undefined;
  const log = useResource(
    `audit ${before ?? ""}`,
    (signal) => take(api.GET("/api/audit", { params: { query: { limit: PAGE, ...(before ? { before } : {}) } }, signal })),
    { every: before ? undefined : 5000 },
  );
  const entries = log.data?.entries ?? [];
  const last = entries[entries.length - 1];
  return (
    <Panel title="Audit log" aside="Every change made over HTTP">
      {log.problem && <Trouble problem={log.problem} retry={log.refresh} />}
      {log.loading ? (
        <Loading />
      ) : entries.length ? (
        <>
          <div class="scroller" tabIndex={0} role="region" aria-label="Audit log">
            <table class="rows">
              <thead>
                <tr>
                  <th>When</th>
                  <th>Who</th>
                  <th>What</th>
                  <th>From</th>
                </tr>
              </thead>
              <tbody>
                {entries.map((entry) => (
                  <EntryRow key={entry.seq} entry={entry} />
                ))}
              </tbody>
            </table>
          </div>
          <nav class="pages" aria-label="Pages of the audit log">
            <Button disabled={!before} onClick={() => setQuery({ before: null })}>
              Newest
            </Button>
            <Button disabled={entries.length < PAGE} onClick={() => last && setQuery({ before: String(last.seq) })}>
              Older →
            </Button>
          </nav>
        </>
      ) : (
        !log.problem && <Empty title="Nothing was changed yet." />
      )}
    </Panel>
  );
}

function EntryRow({ entry }: { entry: AuditEntry }) {
  const isTask = entry.target && /^[0-9a-f-]{36}$/.test(entry.target) && entry.action.includes("task");
  return (
    <tr>
      <td title={absolute(entry.at)}>
        <Ago at={entry.at} />
      </td>
      <td>
        {entry.actor} <span class="hint">{entry.role}</span>
      </td>
      <td>
        {entry.action.replaceAll("_", " ")}{" "}
        {isTask ? <a href={href(`/tasks/${entry.target}`)}>{shortId(entry.target!)}</a> : entry.target}
        <div class="preview">{jsonPreview(entry.detail)}</div>
      </td>
      <td class="soft">{entry.remote ?? "–"}</td>
    </tr>
  );
}
