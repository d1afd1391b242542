/** What holds tasks up and a person should know on every page: pauses, types that nobody works on, workers that are gone. */

import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { byName, plural } from "../format";
import { href, path } from "../router";
import { Ago, Button } from "./basic";
import { isRead } from "./calm";
import { Act, countAlike, type Finding, useFindings } from "./findings";

/** More alike than these are one banner, until somebody opens it. */
const MANY = 2;

/** Of which findings every page tells, how many of them are told in short, and whether they can be put away. */
const TOLD: Record<string, { many?: (all: Finding[]) => string; news?: boolean }> = {
  no_workers: {},
  paused: { many: (all) => plural(countAlike(all), "pause") },
  unhandled: { many: (all) => `No running worker handles ${plural(countAlike(all), "type")}` },
  worker_lost: { many: (all) => `${plural(countAlike(all), "worker")} were lost with ${plural(held(all), "task")}`, news: true },
  worker_silent: { many: (all) => `${plural(countAlike(all), "worker")} have stopped sending heartbeats`, news: true },
};

const held = (all: Finding[]): number => all.reduce((sum, each) => sum + each.count, 0);
const unfolded = signal<string[]>([]);
const dismissed = signal<string[]>(JSON.parse(sessionStorage.getItem("dismissed") ?? "[]") as string[]);
const keyOf = (finding: Finding): string => `${finding.code} ${finding.since} ${finding.text}`;

function dismiss(all: Finding[]): void {
  dismissed.value = [...dismissed.value, ...all.map(keyOf)].slice(-200);
  sessionStorage.setItem("dismissed", JSON.stringify(dismissed.value));
}

function Dismiss({ all }: { all: Finding[] }) {
  return (
    <Button kind="plain" onClick={() => dismiss(all)} label="Dismiss">
      ×
    </Button>
  );
}

function Folded({ code, all }: { code: string; all: Finding[] }) {
  const names = all.flatMap((each) => (code === "paused" ? [each.type ?? "everything"] : each.type ? [each.type] : [])).sort(byName);
  return (
    <div class="banner warn" role="status">
      <span>
        <strong>{TOLD[code]!.many!(all)}</strong>
        {names.length > 0 && `: ${names.slice(0, 3).join(", ")}`}
        {names.length > 3 && ` and ${countAlike(all) - 3} more`}
      </span>
      <span class="banner-acts">
        <a href={href(names.length ? "/types" : "/workers")}>{names.length ? "Types" : "Workers"}</a>
        <Button kind="small" onClick={() => (unfolded.value = [...unfolded.value, code])}>
          Show all
        </Button>
        {TOLD[code]!.news && <Dismiss all={all} />}
      </span>
    </div>
  );
}

function One({ finding, done }: { finding: Finding; done: () => void }) {
  return (
    <div class="banner warn" role="status">
      <span>
        {finding.text}
        {finding.since && (
          <>
            {" "}
            · <Ago at={finding.since} />
          </>
        )}
      </span>
      <span class="banner-acts">
        {finding.actions.map((action) => (
          <Act key={action.action} action={action} done={done} />
        ))}
        {TOLD[finding.code]!.news && <Dismiss all={[finding]} />}
      </span>
    </div>
  );
}

export function Banners() {
  // The overview says all of this, and more, at its top.
  const wanted = path.value !== "/";
  const found = useFindings(wanted);
  const told = useStill(found.data?.findings ?? []);
  if (!wanted) return null;
  const all = told.filter((each) => !dismissed.value.includes(keyOf(each)));
  return (
    <>
      {Object.keys(TOLD).map((code) => {
        const alike = all.filter((each) => each.code === code);
        if (alike.length > MANY && !unfolded.value.includes(code)) return <Folded key={code} code={code} all={alike} />;
        return alike.map((each) => <One key={keyOf(each)} finding={each} done={found.refresh} />);
      })}
    </>
  );
}

/** What comes and goes by itself does so when no list below is being read; what a person did is shown at once. */
function useStill(findings: Finding[]): Finding[] {
  const shown = useRef<Finding[]>([]);
  const isDone = (each: Finding): boolean => each.code === "paused";
  shown.current = isRead.value ? [...shown.current.filter((each) => !isDone(each)), ...findings.filter(isDone)] : findings;
  return shown.current;
}
