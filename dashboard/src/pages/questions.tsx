/** Questions: what workflows ask people, the oldest first, answered here. */

import { api, take } from "../api/client";
import { count } from "../format";
import { useResource } from "../resource";
import { Empty, PageHead, Panel } from "../ui/basic";
import { Listed } from "../ui/listed";
import { type Asked, Question } from "../ui/question";
import "../styles/questions.css";

const MOST = 100;
const LOOKING = 5000;

export function QuestionsPage() {
  const found = useResource(
    "questions",
    (signal) => take(api.GET("/api/questions", { params: { query: { limit: MOST } }, signal })),
    { live: true, every: LOOKING },
  );
  const all: Asked[] = found.data?.questions ?? [];
  return (
    <>
      <PageHead title="Questions" />
      <Panel title="Waiting for an answer" aside={all.length > 0 && (all.length === MOST ? `The oldest ${MOST}` : count(all.length))}>
        <Listed source={found} some={all.length > 0} empty={<Nothing />}>
          <ul class="questions">
            {all.map((asked) => (
              <li key={`${asked.taskId} ${asked.key}`}>
                <Question asked={asked} named done={found.refresh} />
              </li>
            ))}
          </ul>
        </Listed>
      </Panel>
    </>
  );
}

function Nothing() {
  return (
    <Empty title="No open questions.">
      <p>
        A workflow asks with <code>ctx.wait(…, ask="Ship this order?")</code> and waits here for its answer.
      </p>
    </Empty>
  );
}
