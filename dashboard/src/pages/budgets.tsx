/** Budgets of workflows: what they may spend over all workers, and what is left right now. */

import { useState } from "preact/hooks";
import { changed } from "../actions";
import { api, take } from "../api/client";
import type { components } from "../api/schema";
import { count } from "../format";
import { useResource } from "../resource";
import { can } from "../session";
import { attempt, say } from "../toasts";
import { Bar, Button, Choice, Empty, Panel } from "../ui/basic";
import { confirm, FormDialog } from "../ui/dialog";
import { Listed } from "../ui/listed";
import { Table } from "../ui/table";

type Budget = components["schemas"]["BudgetInfo"];

const READING = 2000;

export function Budgets() {
  const budgets = useResource("budgets", (signal) => take(api.GET("/api/budgets", { signal })), { live: true, every: READING });
  const [editing, setEditing] = useState<Budget | "new" | null>(null);
  const known = budgets.data?.budgets ?? [];
  const make = can("operate") && (
    <Button kind="small" onClick={() => setEditing("new")}>
      New budget
    </Button>
  );
  const refresh = () => {
    budgets.refresh();
    changed();
  };
  return (
    <Panel title="Budgets" aside={make}>
      <Listed source={budgets} some={known.length > 0} empty={<NoBudgets />} rows={2}>
        <Table label="Budgets" columns={["Budget", "Tokens that come", "Holds at most", "Left now"]} acts={can("operate")}>
          {known.map((budget) => (
            <Row key={budget.name} budget={budget} edit={() => setEditing(budget)} refresh={refresh} />
          ))}
        </Table>
      </Listed>
      {editing && (
        <BudgetDialog
          like={editing === "new" ? null : editing}
          close={() => {
            setEditing(null);
            refresh();
          }}
        />
      )}
    </Panel>
  );
}

function NoBudgets() {
  return (
    <Empty title="No budgets.">
      <p>
        A workflow spends from a budget with <code>ctx.spend(&quot;llm-tokens&quot;, 800)</code> and waits while it is short of tokens.
      </p>
    </Empty>
  );
}

/** In the larger unit where that is as exact: `90,000 per minute`. */
function comes({ perSecond }: Budget): [number, "minute" | "second"] {
  const minutely = perSecond * 60;
  return Math.abs(minutely - Math.round(minutely)) < 1e-6 ? [Math.round(minutely), "minute"] : [perSecond, "second"];
}

function Row({ budget, edit, refresh }: { budget: Budget; edit: () => void; refresh: () => void }) {
  const [tokens, unit] = comes(budget);
  const left = Math.max(0, Math.floor(budget.tokens));
  const remove = () =>
    confirm({
      title: `Remove the budget ${budget.name}?`,
      verb: "Remove 1 budget",
      danger: true,
      text: { body: <p>Workflows that spend from it fail until there is one of this name again.</p> },
      work: async () => {
        await attempt(() => take(api.DELETE("/api/budgets/{name}", { params: { path: { name: budget.name } } })), `${budget.name} was removed.`);
        refresh();
      },
    });
  return (
    <tr>
      <td class="long">{budget.name}</td>
      <td class="half" data-label="Tokens that come">
        {count(tokens)} per {unit}
      </td>
      <td class="half" data-label="Holds at most">
        {count(budget.burst)}
      </td>
      <td class="whole" data-label="Left now">
        {count(left)} <Bar part={left / budget.burst} label={`Left of ${budget.name}`} />
      </td>
      {can("operate") && (
        <td class="doing">
          <Button kind="small" onClick={edit} label={`Edit ${budget.name}`}>
            Edit
          </Button>
          <Button kind="small danger" onClick={remove} label={`Remove ${budget.name}`}>
            Remove
          </Button>
        </td>
      )}
    </tr>
  );
}

function BudgetDialog({ like, close }: { like: Budget | null; close: () => void }) {
  const [tokens, unit] = like ? comes(like) : [1000, "minute" as const];
  const send = async (form: FormData) => {
    const name = like?.name ?? (form.get("name") as string).trim();
    const [rate, burst] = [Number(form.get("tokens")), form.get("burst") as string];
    const body = { [form.get("unit") === "minute" ? "perMinute" : "perSecond"]: rate, ...(burst ? { burst: Number(burst) } : {}) };
    await take(api.PUT("/api/budgets/{name}", { params: { path: { name } }, body }));
    say(`${name} is saved.`);
  };
  return (
    <FormDialog title={like ? `Edit ${like.name}` : "New budget"} verb="Save" onClose={close} send={send}>
      <p class="soft">Applies to all workers immediately.</p>
      {!like && (
        <label class="field stacked">
          Name
          <input name="name" required maxLength={255} autoComplete="off" placeholder="llm-tokens" />
        </label>
      )}
      <div class="form-grid">
        <label class="field stacked">
          Tokens that come
          <input name="tokens" type="number" required min="0.001" step="any" defaultValue={String(tokens)} />
        </label>
        <label class="field stacked">
          Per
          <Choice
            name="unit"
            chosen={unit}
            options={[
              ["minute", "minute"],
              ["second", "second"],
            ]}
          />
        </label>
        <label class="field stacked">
          Holds at most
          <input name="burst" type="number" min="0.001" step="any" placeholder="what comes in that time" defaultValue={like ? String(like.burst) : ""} />
        </label>
      </div>
    </FormDialog>
  );
}
