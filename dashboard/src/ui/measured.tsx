/** Room for a picture: it is drawn as wide as there is place, so that its words are as large as those around it. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { mark, moments } from "../format";

export function Measured({ class: name, children }: { class: string; children: (width: number) => ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => setWidth(box.current!.clientWidth), []);
  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    resized.observe(box.current!);
    return () => resized.disconnect();
  }, []);
  return (
    <div ref={box} class={name}>
      {width > 0 && children(width)}
    </div>
  );
}

interface AxisProps {
  since: number;
  until: number;
  left: number;
  right: number;
  y: number;
}

/** Pixels from one moment to the next, and those that the words of one need. */
const [APART, WORDS] = [90, 40];

/** The moments below a picture that goes from `since` on the left to `until` on the right. */
export function TimeAxis({ since, until, left, right, y }: AxisProps) {
  const marks = moments(since, until, Math.max(2, Math.floor((right - left) / APART)));
  const x = (at: number) => left + ((at - since) / (until - since)) * (right - left);
  return (
    <>
      {marks.at
        .filter((at) => x(at) + WORDS <= right)
        .map((at) => (
          <text key={at} class="t-edge" x={x(at)} y={y}>
            {mark(at, marks.apart)}
          </text>
        ))}
    </>
  );
}
