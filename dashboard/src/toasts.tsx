/** What was done, or could not be, said in passing. */

import { signal } from "@preact/signals";
import { Problem } from "./api/client";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
  link?: { text: string; to: string };
  undo?: () => Promise<unknown>;
}

const toasts = signal<Toast[]>([]);
let last = 0;

export function say(text: string, link?: Toast["link"], bad = false): void {
  show({ id: ++last, text, bad, ...(link ? { link } : {}) }, bad ? 12_000 : 6000);
}

/** Say what was done, with a button that takes it back. */
export function sayUndoable(text: string, undo: () => Promise<unknown>): void {
  show({ id: ++last, text, bad: false, undo }, 10_000);
}

function show(toast: Toast, milliseconds: number): void {
  toasts.value = [...toasts.value.slice(-2), toast];
  setTimeout(() => dismiss(toast.id), milliseconds);
}

/** Do something and say how it ended; true if it went well. */
export async function attempt(work: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await work();
    if (done) say(done);
    return true;
  } catch (error) {
    say(error instanceof Problem ? error.detail : String(error), undefined, true);
    return false;
  }
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={toast.bad ? "toast bad" : "toast"}>
          <span>{toast.text}</span>
          {toast.link && <a href={toast.link.to}>{toast.link.text}</a>}
          {toast.undo && (
            <button class="plain" onClick={() => (dismiss(toast.id), void attempt(toast.undo!))}>
              Undo
            </button>
          )}
          <button class="plain" onClick={() => dismiss(toast.id)} aria-label="Dismiss">
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
