/** The start of the dashboard. */

// The styles first: those of a page, which come with it, go before these where both say something.
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/tables.css";
import "./styles/dialog.css";
import "./styles/values.css";
import { render } from "preact";
import { App } from "./app";
import { showControls } from "./bidi";
import { startClock } from "./clock";
import { listenToKeys } from "./keys";
import { keepSamples } from "./samples";
import { listen } from "./live";
import { followLinks } from "./router";
import { keepSession } from "./session";

showControls();
followLinks();
listenToKeys();
startClock();
listen();
keepSamples();
keepSession();
render(<App />, document.getElementById("app")!);
