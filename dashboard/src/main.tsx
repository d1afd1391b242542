/** The start of the dashboard. */

import { render } from "preact";
import { App } from "./app";
import { startClock } from "./clock";
import { listenToKeys } from "./keys";
import { keepSamples } from "./samples";
import { listen } from "./live";
import { followLinks } from "./router";
import { loadSession } from "./session";
import { attempt } from "./toasts";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/tables.css";
import "./styles/dialog.css";
import "./styles/values.css";

followLinks();
listenToKeys();
startClock();
listen();
keepSamples();
void attempt(loadSession);
render(<App />, document.getElementById("app")!);
