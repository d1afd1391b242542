/** Where we are: the address is the only place where a page keeps what it shows. */

import { computed, signal } from "@preact/signals";

/** Under which path the service is mounted; empty at the top. */
export const root = document.querySelector<HTMLMetaElement>('meta[name="tasklib-root"]')?.content ?? "";

interface Address {
  path: string;
  query: URLSearchParams;
}

function read(): Address {
  const path = decodeURIComponent(location.pathname.slice(decodeURIComponent(root).length)) || "/";
  return { path: path.length > 1 ? path.replace(/\/$/, "") : path, query: new URLSearchParams(location.search) };
}

export const address = signal<Address>(read());
export const path = computed(() => address.value.path);
export const query = computed(() => address.value.query);

/** The address of a page of ours, to be put into a link. */
export function href(to: string, parameters: Record<string, string | string[] | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each) search.append(name, each);
  }
  const text = search.toString();
  return `${root}${to}${text ? `?${text}` : ""}`;
}

/** Show another page. */
export function go(to: string, replace = false): void {
  keepScroll();
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  address.value = read();
  if (!replace) scrollTo(0, 0);
}

interface Kept {
  scroll?: number;
}

/** Note in the entry of the history how far down the page is. */
function keepScroll(): void {
  const kept = (history.state as Kept | null)?.scroll ?? 0;
  if (kept !== scrollY) history.replaceState({ scroll: scrollY } satisfies Kept, "");
}

/** Milliseconds for which a page that is read again may grow until it is as high as it was. */
const GROWING = 3000;

/** Scroll to where the entry of the history was left, as soon as the page is high enough. */
function restoreScroll(): void {
  const wanted = (history.state as Kept | null)?.scroll ?? 0;
  const started = performance.now();
  let last = scrollY;
  const step = () => {
    if (scrollY !== last || performance.now() - started > GROWING) return;
    scrollTo(0, wanted);
    last = scrollY;
    if (Math.abs(last - wanted) > 1) requestAnimationFrame(step);
  };
  step();
}

/** Change what the page shows, in its address; null takes a parameter away. */
export function setQuery(changes: Record<string, string | string[] | null>, replace = false): void {
  const next = new URLSearchParams(address.value.query);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) if (each) next.append(name, each);
  }
  const text = next.toString();
  const scroll = scrollY;
  go(`${location.pathname}${text ? `?${text}` : ""}`, replace);
  scrollTo(0, scroll);
}

/** Let plain clicks on our own links change the page without loading it anew. */
export function followLinks(): void {
  history.scrollRestoration = "manual";
  addEventListener("popstate", () => {
    address.value = read();
    restoreScroll();
  });
  addEventListener("scrollend", keepScroll);
  restoreScroll();
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a");
    const special = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0;
    if (!link || special || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    const to = new URL(link.href, location.href);
    if (to.origin !== location.origin || !`${to.pathname}/`.startsWith(`${root}/`)) return;
    event.preventDefault();
    go(to.pathname + to.search);
  });
}
