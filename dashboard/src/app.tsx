/** The frame around every page: where one can go, whether we hear the service, and what holds everything up. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Stats } from "./api/client";
import { lazily } from "./lazily";
import { helpShown, KEYS } from "./keys";
import { short, showUtc, timeOfDay, utc } from "./format";
import { connection, hold, lastHeard, restart, snapshot } from "./live";
import { href, path } from "./router";
import { session } from "./session";
import { Toasts } from "./toasts";
import { Button, Empty, PageHead } from "./ui/basic";
import { Banners } from "./ui/banners";
import { Confirmation, Dialog } from "./ui/dialog";
import { Palette } from "./ui/palette";
import { SubmitDialog } from "./ui/submit";
import { TaskPage } from "./pages/task";
import { TasksPage } from "./pages/tasks";

const OverviewPage = lazily("Overview", async () => (await import("./pages/overview")).OverviewPage);
const ErrorsPage = lazily("Errors", async () => (await import("./pages/errors/errors")).ErrorsPage);
const ErrorPage = lazily<{ id: string }>("Error", async () => (await import("./pages/errors/group")).ErrorPage);
const WorkersPage = lazily("Workers", async () => (await import("./pages/workers")).WorkersPage);
const SchedulesPage = lazily("Schedules", async () => (await import("./pages/schedules")).SchedulesPage);
const TypesPage = lazily("Types", async () => (await import("./pages/types")).TypesPage);
const LatencyPage = lazily("Latency", async () => (await import("./pages/latency")).LatencyPage);
const QuestionsPage = lazily("Questions", async () => (await import("./pages/questions")).QuestionsPage);
const LanesPage = lazily("Lanes", async () => (await import("./pages/lanes/lanes")).LanesPage);
const ReportPage = lazily("Report", async () => (await import("./pages/report")).ReportPage);
const SettingsPage = lazily("Settings", async () => (await import("./pages/settings")).SettingsPage);

interface Place {
  to: string;
  name: string;
  page: () => ComponentChildren;
  number?: () => number | undefined;
}

const gaveUp = (stats: Stats | undefined) => stats && stats.failed - stats.retrying + stats.buried;

const PLACES: Place[] = [
  { to: "/", name: "Overview", page: () => <OverviewPage /> },
  { to: "/tasks", name: "Tasks", page: () => <TasksPage />, number: () => snapshot.value?.stats.pending },
  { to: "/errors", name: "Errors", page: () => <ErrorsPage />, number: () => gaveUp(snapshot.value?.stats) },
  { to: "/workers", name: "Workers", page: () => <WorkersPage />, number: () => snapshot.value?.workersAlive },
  { to: "/schedules", name: "Schedules", page: () => <SchedulesPage /> },
  { to: "/questions", name: "Questions", page: () => <QuestionsPage /> },
  { to: "/types", name: "Types", page: () => <TypesPage /> },
  { to: "/latency", name: "Latency", page: () => <LatencyPage /> },
  { to: "/lanes", name: "Lanes", page: () => <LanesPage /> },
  { to: "/report", name: "Report", page: () => <ReportPage /> },
  { to: "/settings", name: "Settings", page: () => <SettingsPage /> },
];

export function App() {
  const [menu, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  const at = path.value;
  useEffect(() => setMenu(false), [at]);
  useEffect(() => {
    const place = PLACES.find((each) => each.to === at)?.name ?? (at.startsWith("/errors/") ? "Error" : "Task");
    document.title = `${place} · tasklib`;
  }, [at]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        To the content
      </a>
      <header class="top">
        <a class="brand" href={href("/")}>
          <Mark /> tasklib
        </a>
        <Button kind="plain" onClick={() => setMenu(!menu)} label="Menu">
          ☰
        </Button>
        <nav class={menu ? "places open" : "places"} aria-label="Pages of the dashboard">
          {PLACES.map((place) => (
            <PlaceLink key={place.to} place={place} at={at} />
          ))}
        </nav>
        <div class="state">
          <ConnectionState />
          <button type="button" class="plain zone" aria-pressed={utc.value} onClick={() => showUtc(!utc.value)} title="Show all times in UTC">
            UTC
          </button>
          <Button kind="plain" onClick={() => (helpShown.value = true)} label="Keyboard help" title="Keyboard help (?)">
            ?
          </Button>
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1} class={isStale() ? "stale" : undefined}>
        <Lost />
        <Banners />
        {page(at)}
      </main>
      <Toasts />
      <Confirmation />
      <SubmitDialog />
      <Palette />
      {helpShown.value && <Help />}
    </>
  );
}

const isStale = () => connection.value === "lost" || connection.value === "database";

function page(at: string): ComponentChildren {
  const place = PLACES.find((each) => each.to === at);
  if (place) return place.page();
  const task = /^\/tasks\/([^/]+)$/.exec(at)?.[1];
  if (task) return <TaskPage key={task} id={task} />;
  const error = /^\/errors\/([^/]+)$/.exec(at)?.[1];
  if (error) return <ErrorPage key={error} id={error} />;
  return (
    <>
      <PageHead title="Not found" />
      <Empty title="There is no such page.">
        <a class="button" href={href("/")}>
          To the overview
        </a>
      </Empty>
    </>
  );
}

function PlaceLink({ place, at }: { place: Place; at: string }) {
  const here = place.to === "/" ? at === "/" : at === place.to || at.startsWith(`${place.to}/`);
  const number = place.number?.();
  return (
    <a href={href(place.to)} aria-current={here ? "page" : undefined}>
      {place.name}
      {number ? <span class="number-mark">{short(number)}</span> : null}
    </a>
  );
}

function ConnectionState() {
  const state = connection.value;
  const texts = { connecting: "Connecting", live: "Live", lost: "Disconnected", database: "No database", held: "Updates paused" };
  return (
    <button
      type="button"
      class={`connection ${state}`}
      onClick={() => (state === "lost" || state === "database" ? restart() : hold(state !== "held"))}
      title={state === "live" ? "Pause updates of this page" : state === "held" ? "Resume updates" : "Try again now"}
    >
      <i /> <span>{texts[state]}</span>
    </button>
  );
}

/** What is shown may be out of date: says why and since when. */
function Lost() {
  const state = connection.value;
  if (state !== "lost" && state !== "database") return null;
  const since = lastHeard.value ? `What you see is from ${timeOfDay(lastHeard.value)}. ` : "";
  return (
    <div class="banner bad" role="alert">
      <span>
        {state === "database" ? (
          <>
            <strong>The database does not answer.</strong> {since}The service is running and tries again.
          </>
        ) : (
          <>
            <strong>Connection lost.</strong> {since}Reconnecting automatically.
          </>
        )}
      </span>
      <Button kind="small" onClick={restart}>
        Try now
      </Button>
    </div>
  );
}

function Help() {
  const close = () => (helpShown.value = false);
  return (
    <Dialog title="Keyboard" onClose={close}>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split("  ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      {session.value && (
        <p class="soft dialog-body">
          You are {session.value.name}, {session.value.role}.
        </p>
      )}
    </Dialog>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect class="mark-ground" width="32" height="32" rx="7" />
      <path class="mark-lines" d="M8 10h16M8 16h11M8 22h6" />
      <path class="mark-tick" d="m18 22 3 3 5-6" />
    </svg>
  );
}
