/** Characters that turn the direction of text around are shown as what they are, wherever a text comes from. */

import { options, type VNode } from "preact";

const CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const TEXTS = ["children", "title", "aria-label"];

const shown = (text: string): string =>
  text.replace(CONTROLS, (control) => `⟨U+${control.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** Every text that is drawn passes here; what is copied, edited or sent does not. */
export function showControls(): void {
  const before = options.vnode;
  options.vnode = (vnode: VNode) => {
    const props = vnode.props as Record<string, unknown> | null;
    if (props) for (const name of TEXTS) if (props[name]) props[name] = cleaned(props[name]);
    before?.(vnode);
  };
}

function cleaned(value: unknown): unknown {
  if (typeof value === "string") return value.search(CONTROLS) >= 0 ? shown(value) : value;
  return Array.isArray(value) && value.some((each) => typeof each === "string") ? value.map(cleaned) : value;
}
