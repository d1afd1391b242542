/** Some choices beside each other, of which one holds; the address keeps which. */

import { setQuery } from "../router";

interface Props {
  name: string;
  label: string;
  chosen: string;
  options: [string, string][];
  /** What else changes in the address with it. */
  also?: Record<string, null>;
}

export function Segments({ name, label, chosen, options, also }: Props) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={key === chosen} onClick={() => setQuery({ ...also, [name]: key })}>
          {text}
        </button>
      ))}
    </div>
  );
}
