/** What stands still while a pointer, the focus or a selection is in it: what is about to be pressed stays. */

import { signal } from "@preact/signals";
import type { ComponentChildren, SVGAttributes } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { Button } from "./basic";

/** Whether a pointer or the focus is, or was a moment ago, in such a list or picture: what comes by itself above it waits,
 * or would move it, or move what the pointer is on its way to. */
export const isRead = signal(false);
const MOMENT = 1000;
let leaving: ReturnType<typeof setTimeout>;

/** While it is `inside`, nothing comes by itself above. */
function useReading(inside: boolean): void {
  useEffect(() => {
    if (!inside) return;
    clearTimeout(leaving);
    isRead.value = true;
    return () => void (leaving = setTimeout(() => (isRead.value = false), MOMENT));
  }, [inside]);
}

/** A picture in which one points at small things: a pointer in it keeps it where it is. */
export function StillPicture({ onPointerLeave, ...picture }: SVGAttributes<SVGSVGElement> & { onPointerLeave: () => void }) {
  const [inside, setInside] = useState(false);
  useReading(inside);
  const leave = () => {
    setInside(false);
    onPointerLeave();
  };
  return <svg {...picture} onPointerEnter={(event) => event.pointerType === "mouse" && setInside(true)} onPointerLeave={leave} />;
}

interface Calm<T> {
  /** The entries in the order in which they stand; each as it is now. */
  shown: T[];
  /** How many of the newest entries are not shown. */
  fresh: number;
  /** Entries that are shown and not among the newest. */
  left: string[];
  /** Show the newest. */
  thaw: () => void;
  /** Puts the list into the place that is watched. */
  frame: (children: ComponentChildren) => ComponentChildren;
}

interface Held<T> {
  key: string;
  ids: string[];
  known: Map<string, T>;
}

/** `key` says which list it is: another one starts anew. */
export function useCalm<T>(key: string, items: T[], idOf: (item: T) => string, pinned = false): Calm<T> {
  const [inside, setInside] = useState(false);
  const [, thawed] = useState(0);
  useReading(inside);
  const box = useRef<HTMLDivElement>(null);
  const held = useRef<Held<T> | null>(null);
  const latest = new Map(items.map((item) => [idOf(item), item]));
  const holds = pinned || inside;
  if (!holds || held.current?.key !== key) held.current = null;
  if (holds && !held.current && items.length) held.current = { key, ids: [...latest.keys()], known: latest };
  const { ids, known } = held.current ?? { ids: [...latest.keys()], known: latest };
  for (const id of ids) if (latest.has(id)) known.set(id, latest.get(id)!);
  const standing = new Set(ids);
  return {
    shown: ids.map((id) => known.get(id)!),
    fresh: items.filter((item) => !standing.has(idOf(item))).length,
    left: ids.filter((id) => !latest.has(id)),
    thaw: () => {
      held.current = null;
      thawed((times) => times + 1);
      scrollTo(0, 0);
    },
    frame: (children) => (
      <div
        ref={box}
        // A finger has no place where it rests: it is in the list only while it touches it.
        onPointerEnter={(event) => event.pointerType === "mouse" && setInside(true)}
        onPointerLeave={() => setInside(hasFocus(box.current))}
        onFocusIn={() => hasFocus(box.current) && setInside(true)}
        onFocusOut={(event) => {
          const to = event.relatedTarget as Node | null;
          if (!box.current?.contains(to)) setInside(box.current?.matches(":hover") ?? false);
        }}
      >
        {children}
      </div>
    ),
  };
}

/** Whether somebody walks through the list by keyboard; a button that was clicked keeps the focus, and means nothing. */
const hasFocus = (box: HTMLElement | null): boolean => Boolean(box?.querySelector(":focus-visible"));

/** What waits above a list that stands still; always there, so that nothing moves when it appears. */
export function News({ calm, most }: { calm: Calm<unknown>; most: number }) {
  if (!calm.fresh) return null;
  return (
    <div class="news">
      <Button kind="small" onClick={calm.thaw}>
        {count(calm.fresh)}
        {calm.fresh >= most ? " or more" : ""} new ↑
      </Button>
    </div>
  );
}
