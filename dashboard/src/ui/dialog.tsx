/** Questions that must be answered before something happens. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/client";
import { Button, Refusal } from "./basic";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

/** A modal dialog: the browser keeps the focus inside, and Escape closes it. */
export function Dialog({ title, onClose, children, wide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  // Before it is painted: an Escape pressed at once must find it open.
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    element.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : undefined}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header>
        <h2 id="dialog-title">{title}</h2>
        <Button kind="plain" onClick={onClose} label="Close">
          ×
        </Button>
      </header>
      {children}
    </dialog>
  );
}

interface FormProps extends DialogProps {
  /** The word on the button that sends. */
  verb: string;
  /** The word on the one that does not. */
  dismiss?: string;
  danger?: boolean | undefined;
  /** There is nothing to send yet, or nothing at all. */
  off?: boolean | undefined;
  /** What is thrown is shown above the button, and the fields stay; false leaves them without a word. */
  send: (form: FormData) => Promise<unknown>;
}

/** A dialog with fields: sends them once, says what was refused, and closes when it went well. */
export function FormDialog({ verb, dismiss = "Cancel", danger, off, send, children, onClose, ...dialog }: FormProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      if ((await send(new FormData(event.currentTarget as HTMLFormElement))) !== false) onClose();
    } catch (error) {
      setProblem(error instanceof Problem ? error.detail : (error as Error).message);
    }
    setBusy(false);
  };
  return (
    <Dialog {...dialog} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <div class="dialog-body">
          {children}
          {problem && <Refusal>{problem}</Refusal>}
        </div>
        <footer>
          <Button onClick={onClose}>{dismiss}</Button>
          <Button kind={danger ? "danger" : "primary"} type="submit" disabled={busy || off}>
            {verb}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

interface Question {
  title: string;
  /** What will happen; a promise is waited for, so that the answer can hold a number counted just now. */
  text: Promise<Counted> | Counted;
  /** The word on the button that does it. */
  verb: string;
  danger?: boolean;
  /** What has to be filled in for it. */
  fields?: ComponentChildren;
  /** What is thrown is shown, and the question stays. */
  work: (form: FormData) => Promise<unknown>;
}

export interface Counted {
  body: ComponentChildren;
  /** Nothing would happen: the button stays off. */
  nothing?: boolean;
}

const question = signal<Question | null>(null);

/** Ask before doing something. */
export function confirm(asked: Question): void {
  question.value = asked;
}

export function Confirmation() {
  const asked = question.value;
  return asked && <Ask key={asked.title} asked={asked} />;
}

function Ask({ asked }: { asked: Question }) {
  const [text, setText] = useState<Counted | null>(null);
  useEffect(() => {
    Promise.resolve(asked.text).then(setText, (error) => setText({ body: String(error.detail ?? error), nothing: true }));
  }, [asked]);
  return (
    <FormDialog
      title={asked.title}
      verb={asked.verb}
      dismiss="Keep everything as it is"
      danger={asked.danger}
      off={!text || text.nothing}
      onClose={() => (question.value = null)}
      send={asked.work}
    >
      <div aria-live="polite">{text ? text.body : <p class="soft">Counting …</p>}</div>
      {!text?.nothing && asked.fields}
    </FormDialog>
  );
}
