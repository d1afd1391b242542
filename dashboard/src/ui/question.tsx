/** A question that a workflow asks a person, with fields for its answer. */

import { useState } from "preact/hooks";
import { changed } from "../actions";
import { api, Problem, take } from "../api/client";
import type { components } from "../api/schema";
import { href } from "../router";
import { can } from "../session";
import { say } from "../toasts";
import { Ago, Button, Refusal } from "./basic";
import { type Schema, SchemaFields, valueOf } from "./schema_form";

export type Asked = components["schemas"]["Question"];

export function Question({ asked, named, done }: { asked: Asked; named: boolean; done: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const schema = (asked.answerSchema ?? {}) as Schema;
  const send = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      const value = valueOf(schema, new FormData(event.currentTarget as HTMLFormElement)) ?? null;
      const params = { path: { task_id: asked.taskId, key: asked.key } };
      await take(api.POST("/api/tasks/{task_id}/answers/{key}", { params, body: { value } }));
      say(`${asked.type} has its answer.`, { text: "Open it", to: href(`/tasks/${asked.taskId}`) });
      changed();
      done();
    } catch (error) {
      setProblem(error instanceof Problem ? error.detail : (error as Error).message);
    }
    setBusy(false);
  };
  return (
    <form class="question" onSubmit={(event) => void send(event)} aria-label={asked.question}>
      <p class="question-text">{asked.question}</p>
      <p class="hint">
        {named && (
          <>
            <a href={href(`/tasks/${asked.taskId}`)}>{asked.type}</a> ·{" "}
          </>
        )}
        <code>{asked.key}</code> · asked <Ago at={asked.askedAt} />
        {asked.until && (
          <>
            {" "}
            · answer wanted <Ago at={asked.until} />
          </>
        )}
      </p>
      {can("operate") && (
        <>
          <SchemaFields schema={schema} label="Answer" />
          {problem && <Refusal>{problem}</Refusal>}
          <Button kind="primary" type="submit" disabled={busy}>
            Answer
          </Button>
        </>
      )}
    </form>
  );
}
