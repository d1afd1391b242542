/** JSON whose numbers keep the text they were written with, where a number of the browser would be another. */

interface Raw {
  rawJSON: string;
}

/** What newer browsers have beside the types that TypeScript knows. */
const json = JSON as unknown as {
  rawJSON?: (text: string) => Raw;
  parse: (text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown) => unknown;
};
/** Fields whose content is the user's own; every other number of an answer is one of ours, and a plain number. */
const OWN = new Set(["payload", "result", "tags", "headers", "detail", "evidence"]);
/** Numbers that may not survive: long ones, trailing zeros, exponents, the negative zero. */
const DOUBTFUL = /\d[\d.]{15}|\.\d*0\b|\d[eE]|-0/;

/** The value of a text; `9007199254740993` stays what it is, in whatever is made of it. */
export function parse(text: string): unknown {
  const { rawJSON } = json;
  if (!rawJSON || !DOUBTFUL.test(text)) return JSON.parse(text);
  return json.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && context.source !== String(value) ? rawJSON(context.source) : value,
  );
}

/** An answer of the service, exact in what users have given and tasks have returned. */
export function parseAnswer(text: string): unknown {
  const plain: unknown = JSON.parse(text);
  return json.rawJSON && DOUBTFUL.test(text) ? merged(plain, parse(text)) : plain;
}

export function isExact(value: unknown): value is Raw {
  return typeof value === "object" && value !== null && typeof (value as Raw).rawJSON === "string" && Object.isFrozen(value);
}

/** A value of any kind as a short text: a string as it is, anything else as JSON. */
export const textOf = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function merged(plain: unknown, exact: unknown): unknown {
  if (Array.isArray(plain)) return plain.map((each, at) => merged(each, (exact as unknown[])[at]));
  if (typeof plain !== "object" || plain === null) return plain;
  const known = exact as Record<string, unknown>;
  return Object.fromEntries(
    Object.entries(plain).map(([name, value]) => [name, OWN.has(name) ? known[name] : merged(value, known[name])]),
  );
}
