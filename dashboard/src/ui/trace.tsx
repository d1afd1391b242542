/** An error as people read it: the message first, then the traceback with its places marked. */

import { lastLine } from "../format";

/** A source line around the place, as the worker wrote it down. */
const SOURCE = /^ {4}\s*\d+ ([|>])/;
const PLACE = /^\s*File "(.+)", line (\d+), in (.+)$/;

export function Trace({ error }: { error: string }) {
  const lines = error.trimEnd().split("\n");
  return (
    <div class="trace">
      <p class="trace-message">{lastLine(error)}</p>
      {lines.length > 1 && (
        <pre tabIndex={0} aria-label="Traceback">
          {lines.map((line, at) => (
            <Line key={at} line={line} />
          ))}
        </pre>
      )}
    </div>
  );
}

function Line({ line }: { line: string }) {
  const place = PLACE.exec(line);
  const source = SOURCE.exec(line)?.[1];
  if (source) return <span class={source === ">" ? "source here" : "source"}>{`${line}\n`}</span>;
  if (!place) return <span class={line.startsWith("    ") ? "code" : undefined}>{`${line}\n`}</span>;
  const [, file = "", number, name] = place;
  const foreign = /site-packages|\/lib\/python|<frozen/.test(file);
  return (
    <span class={foreign ? "frame foreign" : "frame"}>
      {"  "}
      <b>{name}</b> {file}:{number}
      {"\n"}
    </span>
  );
}
