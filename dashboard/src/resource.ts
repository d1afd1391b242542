/** Something read from the service, and read again when there is news; what was read stays until then. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "./api/client";
import { acted, connection, tick } from "./live";

export interface Resource<T> {
  data: T | null;
  problem: Problem | null;
  loading: boolean;
  refresh: () => void;
}

/** Milliseconds after which what could not be read is asked for again. */
const AGAIN = 3000;

interface Options {
  /** Read again at each piece of news. */
  live?: boolean;
  /** Read again after so many milliseconds. */
  every?: number | undefined;
}

/** One reader for one key: never two requests at once, and never an answer older than the last reason to ask. */
class Reader<T> {
  private busy = false;
  private again = false;
  private gone = false;
  private readonly controller = new AbortController();

  constructor(
    private readonly load: (signal: AbortSignal) => Promise<T>,
    private readonly done: (data: T | null, problem: Problem | null) => void,
  ) {}

  async read(): Promise<void> {
    if (this.gone) return;
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    do {
      this.again = false;
      await this.readOnce();
    } while (this.again && !this.controller.signal.aborted);
    this.busy = false;
  }

  close(): void {
    this.controller.abort();
  }

  private async readOnce(): Promise<void> {
    const { signal } = this.controller;
    try {
      const data = await this.load(signal);
      if (!signal.aborted) this.done(data, null);
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      // What was deleted does not come back.
      this.gone = problem.status === 404;
      if (!signal.aborted) this.done(null, problem);
    }
  }
}

/** `key` says what is read: another key forgets the last answer. A null key reads nothing. */
export function useResource<T>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<T>,
  { live = false, every }: Options = {},
): Resource<T> {
  const [state, setState] = useState<{ key: string | null; data: T | null; problem: Problem | null }>({
    key: null,
    data: null,
    problem: null,
  });
  const reader = useRef<Reader<T> | null>(null);
  const news = acted.value + (live ? tick.value : 0);

  useEffect(() => {
    if (key === null) return;
    const current = new Reader(load, (data, problem) =>
      setState((last) => ({ key, data: data ?? (last.key === key ? last.data : null), problem })),
    );
    reader.current = current;
    void current.read();
    // A page that is held stands still, and one that hears nothing reads again when it does.
    const look = () => !document.hidden && connection.peek() === "live" && void current.read();
    const timer = every ? setInterval(look, every) : undefined;
    return () => {
      clearInterval(timer);
      current.close();
    };
  }, [key, every]);

  useEffect(() => {
    if (news) void reader.current?.read();
  }, [news]);

  // What was lost on the way is asked for again; what was refused stays refused.
  const lost = state.problem && (state.problem.status === 0 || state.problem.status >= 500);
  useEffect(() => {
    if (!lost) return;
    const timer = setTimeout(() => void reader.current?.read(), AGAIN);
    return () => clearTimeout(timer);
  }, [lost && state]);

  const current = state.key === key;
  return {
    data: current ? state.data : null,
    problem: current ? state.problem : null,
    loading: !current,
    refresh: () => void reader.current?.read(),
  };
}
