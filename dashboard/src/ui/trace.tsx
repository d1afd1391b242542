/** An error as people read it: the message first, then the traceback with its places marked. */

import { lastLine } from "../format";

/** A source line around the place, as the worker wrote it down. */
const SOURCE = /^ {4}\s*\d+ ([|>])/;
const INDENT = /^( {4}\s*\d+ [|>])( *)(?=\S)/;
const PLACE = /^\s*File "(.+)", line (\d+), in (.+)$/;

export function Trace({ error }: { error: string }) {
  const lines = outdented(error.trimEnd().split("\n"));
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

/** Source lines moved to the left together, as far as the shallowest among them allows. */
function outdented(lines: string[]): string[] {
  const moved = [...lines];
  for (let from = 0; from < lines.length; from++) {
    let to = from;
    while (to < lines.length && SOURCE.test(lines[to]!)) to++;
    const depths = lines.slice(from, to).flatMap((line) => INDENT.exec(line)?.[2]?.length ?? []);
    const surplus = Math.min(...depths) - 1;
    if (surplus > 0 && depths.length) {
      for (let at = from; at < to; at++) moved[at] = lines[at]!.replace(INDENT, (_, edge: string, depth: string) => edge + depth.slice(surplus));
    }
    from = Math.max(from, to - 1);
  }
  return moved;
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
