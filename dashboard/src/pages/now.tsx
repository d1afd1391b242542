/** Now: what is broken, since when, how many tasks it concerns and what can be pressed; and what was changed lately. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { Ago, Button, Panel } from "../ui/basic";
import { useKnownChanges } from "../ui/changes";
import { LimitDialog } from "../ui/controls";
import { Act, type Action, type Alike, type Finding, foldAlike, useFindings } from "../ui/findings";
import { Listed } from "../ui/listed";
import { RedriveDialog } from "./errors/redrive";

const FEW = 5;

export function Now() {
  const found = useFindings();
  const [asking, setAsking] = useState<{ finding: Finding; action: Action } | null>(null);
  const [open, setOpen] = useState(false);
  const [unfolded, setUnfolded] = useState<string[]>([]);
  const all = foldAlike(found.data?.findings ?? [], unfolded);
  const shown = open ? all : all.slice(0, FEW);
  const close = () => {
    setAsking(null);
    found.refresh();
  };
  return (
    <Panel title="Now" class="now" aside={<Changes />}>
      <Standing loading={found.loading}>
        <Listed source={found} some={all.length > 0} rows={2} empty={<p class="now-fine">Nothing is wrong.</p>}>
          <ul class="findings">
            {shown.map((each) =>
              "all" in each ? (
                <Folded key={each.key} alike={each} unfold={() => setUnfolded([...unfolded, each.key])} />
              ) : (
                <One key={`${each.code} ${each.type} ${each.text}`} finding={each} ask={setAsking} done={found.refresh} />
              ),
            )}
          </ul>
          {all.length > shown.length && (
            <Button kind="plain" onClick={() => setOpen(true)}>
              Show {count(all.length - shown.length)} more
            </Button>
          )}
        </Listed>
      </Standing>
      {asking?.action.action === "redrive" && (
        <RedriveDialog
          group={{ id: asking.action.target!, type: asking.finding.type ?? "", error: asking.finding.text.split(" in ")[0] ?? "", message: asking.finding.text }}
          close={close}
        />
      )}
      {asking?.action.action === "limits" && <LimitDialog type={asking.action.target} close={close} />}
    </Panel>
  );
}

interface OneProps {
  finding: Finding;
  ask: (about: { finding: Finding; action: Action }) => void;
  done: () => void;
}

function One({ finding, ask, done }: OneProps) {
  return (
    <li class={finding.severity}>
      <Text finding={finding} />
      <span class="finding-acts">
        {finding.actions.map((action) => (
          <Act key={action.action + action.label} action={action} ask={() => ask({ finding, action })} done={done} />
        ))}
      </span>
    </li>
  );
}

function Folded({ alike, unfold }: { alike: Alike; unfold: () => void }) {
  return (
    <li class={alike.severity}>
      <Text finding={alike} />
      <span class="finding-acts">
        <Button kind="small" onClick={unfold} label={`Show ${alike.text}`}>
          Show all
        </Button>
      </span>
    </li>
  );
}

/** As high while it is read as it was the last time in this width, so that what is below does not jump. */
function Standing({ loading, children }: { loading: boolean; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const key = `height of now in ${innerWidth}`;
  const height = sessionStorage.getItem(key);
  useLayoutEffect(() => {
    if (!loading) sessionStorage.setItem(key, String(box.current?.offsetHeight ?? 0));
  });
  return (
    <div ref={box} style={loading && height ? { height: `${height}px`, overflow: "hidden" } : {}}>
      {children}
    </div>
  );
}

const WORDS = { critical: "Critical", warning: "Warning", info: "Note" };

function Text({ finding }: { finding: Pick<Finding, "severity" | "text" | "since"> | Alike }) {
  return (
    <span class="finding-text">
      <span class={`severity ${finding.severity}`}>{WORDS[finding.severity]}</span> {finding.text}
      {"since" in finding && finding.since && (
        <span class="hint">
          {" "}
          · <Ago at={finding.since} />
        </span>
      )}
    </span>
  );
}

/** The last changes in one line: what was deployed, started, lost, paused, by whom. */
function Changes() {
  const known = useKnownChanges(3600);
  if (!known) return null;
  const [last, ...rest] = known;
  if (!last) return <span>No changes in the last hour</span>;
  return (
    <span class="changes" title={[last, ...rest].slice(0, 20).map((each) => each.text).join("\n")}>
      {last.text} · <Ago at={last.at} />
      {rest.length > 0 && ` · ${count(rest.length)} more in the last hour`}
    </span>
  );
}
