/** The tokens: who may come in, as what, and until when. */

import { useState } from "preact/hooks";
import { changed } from "../actions";
import { api, take, type Token } from "../api/client";
import { inSilence } from "../live";
import { useResource } from "../resource";
import { loadSession, session } from "../session";
import { attempt } from "../toasts";
import { Ago, Button, Choice, Copy, Empty, Panel } from "../ui/basic";
import { confirm, Dialog, FormDialog } from "../ui/dialog";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";

export function Tokens() {
  const tokens = useResource("tokens", (signal) => take(api.GET("/api/tokens", { signal })), { every: 10_000 });
  const [making, setMaking] = useState(false);
  const known = tokens.data?.tokens ?? [];
  const make = (
    <Button kind="small" onClick={() => setMaking(true)}>
      New token
    </Button>
  );
  return (
    <Panel title="Tokens" aside={make}>
      <Listed source={tokens} some={known.length > 0} empty={<NoTokens />} rows={2}>
        <Table label="Tokens" columns={["Name", "Role", "Prefix", "Last used", "Expires"]} acts>
          {known.map((token) => (
            <Row key={token.id} token={token} refresh={tokens.refresh} />
          ))}
        </Table>
      </Listed>
      {making && (
        <TokenDialog
          first={!known.length}
          close={() => {
            setMaking(false);
            tokens.refresh();
            changed();
          }}
        />
      )}
    </Panel>
  );
}

function NoTokens() {
  return (
    <Empty title="No tokens.">
      {session.value?.name === "local" ? (
        <p>Only this machine can use the service. Once a token exists, every request needs one.</p>
      ) : (
        <p>The application that hosts this service decides who may use it.</p>
      )}
    </Empty>
  );
}

function Row({ token, refresh }: { token: Token; refresh: () => void }) {
  const revoke = () =>
    confirm({
      title: `Revoke the token ${token.name}?`,
      verb: "Revoke 1 token",
      danger: true,
      text: { body: <p>Requests with it are refused within a second. This cannot be undone.</p> },
      work: async () => {
        const params = { path: { token_id: token.id } };
        await attempt(() => take(api.DELETE("/api/tokens/{token_id}", { params })), `${token.name} was revoked.`);
        refresh();
        changed();
      },
    });
  return (
    <tr>
      <td class="long">{token.name}</td>
      <td data-label="Role">{token.role}</td>
      <td data-label="Prefix">
        <code>{token.begins}…</code>
      </td>
      <td data-label="Last used">
        <Ago at={token.lastUsedAt} />
      </td>
      <td data-label="Expires">
        <Ends token={token} />
      </td>
      <td class="doing">
        {token.valid && (
          <Button kind="small danger" onClick={revoke} label={`Revoke ${token.name}`}>
            Revoke
          </Button>
        )}
      </td>
    </tr>
  );
}

function Ends({ token }: { token: Token }) {
  if (token.revokedAt) {
    return (
      <span class="late">
        revoked <Ago at={token.revokedAt} />
      </span>
    );
  }
  return token.expiresAt ? <Ago at={token.expiresAt} /> : <>never</>;
}

const ROLES = ["viewer", "operator", "admin", "producer", "worker"];
const DAYS: Record<string, number> = { "30": 30, "90": 90, "365": 365 };
const EXPIRES: [string, string][] = [["", "never"], ...Object.keys(DAYS).map((days): [string, string] => [days, `in ${days} days`])];

function TokenDialog({ first, close }: { first: boolean; close: () => void }) {
  const [secret, setSecret] = useState<string | null>(null);
  const send = async (form: FormData) => {
    const days = DAYS[form.get("expires") as string];
    const role = form.get("role") as Token["role"];
    const expiresAt = days ? { expiresAt: new Date(Date.now() + days * 86_400_000).toISOString() } : {};
    const make = async (through = api) => {
      const made = await take(through.POST("/api/tokens", { body: { name: (form.get("name") as string).trim(), role, ...expiresAt } }));
      setSecret(made.secret);
      return made.secret;
    };
    // From the first token on every request needs one: we sign in with it before this page asks anything else.
    await (first ? inSilence(async (through) => signIn(await make(through), through)) : make());
    return false;
  };
  if (secret) return <Secret secret={secret} close={close} />;
  return (
    <FormDialog title="New token" verb="Create" onClose={close} send={send}>
      {first && <p class="soft">This is the first token: from now on every request needs one. It has the role admin, and you stay signed in.</p>}
      <label class="field stacked">
        Name
        <input name="name" required maxLength={255} autoComplete="off" />
      </label>
      <label class="field stacked">
        Role
        <Choice name="role" chosen={first ? "admin" : "viewer"} options={(first ? ["admin"] : ROLES).map((role) => [role, role])} />
      </label>
      <label class="field stacked">
        Expires
        <Choice name="expires" chosen="" options={EXPIRES} />
      </label>
    </FormDialog>
  );
}

async function signIn(secret: string, through: typeof api): Promise<void> {
  await take(through.POST("/api/session", { headers: { Authorization: `Bearer ${secret}` } }));
  await loadSession(through);
}

function Secret({ secret, close }: { secret: string; close: () => void }) {
  return (
    <Dialog title="The new token" onClose={close}>
      <div class="dialog-body">
        <p>It is shown this once and not stored:</p>
        <p class="secret">
          <code>{secret}</code> <Copy text={secret} label="Copy the token" />
        </p>
      </div>
      <footer>
        <Button kind="primary" onClick={close}>
          Done
        </Button>
      </footer>
    </Dialog>
  );
}
