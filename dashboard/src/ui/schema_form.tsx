/** Fields for a value of which only the JSON Schema is known, and the value that was put into them. */

import type { ComponentChildren } from "preact";
import { parse } from "../api/exact";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  format?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  maxLength?: number;
  minLength?: number;
  pattern?: string;
  $ref?: string;
  $defs?: Record<string, Schema>;
}

/** How a value is put in: the kinds for which there are fields; anything else is written as JSON. */
type Kind =
  | { kind: "boolean" | "text" | "integer" | "number" | "json" | "moment" | "day" }
  | { kind: "choice"; options: unknown[] }
  | { kind: "choices"; options: unknown[] }
  | { kind: "lines" }
  | { kind: "object"; fields: [string, Schema, boolean][] };

const DEEPEST = 2;

/** The schema that a reference means, and what is in it whatever it is; null if it may be null as well. */
function resolve(schema: Schema, root: Schema): { schema: Schema; nullable: boolean } {
  const named = schema.$ref ? root.$defs?.[schema.$ref.split("/").pop() ?? ""] : undefined;
  if (named) return resolve({ ...named, ...(schema.description ? { description: schema.description } : {}) }, root);
  if (schema.allOf?.length === 1) return resolve({ ...schema, ...schema.allOf[0], allOf: [] }, root);
  const ways = schema.anyOf ?? schema.oneOf;
  const real = ways?.filter((each) => each.type !== "null");
  if (ways && real?.length === 1 && ways.length === 2) {
    const { anyOf: _, oneOf: __, ...rest } = schema;
    return { schema: resolve({ ...real[0], ...rest }, root).schema, nullable: true };
  }
  return { schema, nullable: false };
}

function kindOf(schema: Schema, root: Schema, depth: number): Kind {
  if (schema.const !== undefined) return { kind: "choice", options: [schema.const] };
  if (schema.enum) return { kind: "choice", options: schema.enum };
  switch (schema.type) {
    case "boolean":
    case "integer":
    case "number":
      return { kind: schema.type };
    case "string":
      return { kind: schema.format === "date-time" ? "moment" : schema.format === "date" ? "day" : "text" };
    case "array": {
      const items = schema.items && resolve(schema.items, root).schema;
      if (items?.enum) return { kind: "choices", options: items.enum };
      return { kind: items?.type === "string" ? "lines" : "json" };
    }
    case "object": {
      const fields = Object.entries(schema.properties ?? {});
      if (!fields.length || depth >= DEEPEST) return { kind: "json" };
      return { kind: "object", fields: fields.map(([name, each]) => [name, each, schema.required?.includes(name) ?? false]) };
    }
    default:
      return { kind: "json" };
  }
}

interface FieldProps {
  schema: Schema;
  root: Schema;
  name: string;
  label: string;
  required: boolean;
  depth: number;
}

export function SchemaFields({ schema, label }: { schema: Schema; label: string }) {
  return <Field schema={schema} root={schema} name="value" label={label} required depth={0} />;
}

function Field({ schema: given, root, name, label, required, depth }: FieldProps) {
  const { schema, nullable } = resolve(given, root);
  const kind = kindOf(schema, root, depth);
  const needed = required && !nullable;
  const start = given.default === undefined || given.default === null ? "" : String(given.default);
  const about = schema.description && <span class="hint">{schema.description}</span>;
  const stacked = (field: ComponentChildren) => (
    <label class="field stacked">
      {label}
      {needed ? "" : " (optional)"}
      {about}
      {field}
    </label>
  );
  switch (kind.kind) {
    case "object":
      return (
        <fieldset class="schema-group">
          <legend class={depth ? undefined : "unseen"}>{label}</legend>
          {kind.fields.map(([key, each, needs]) => (
            <Field key={key} schema={each} root={root} name={`${name}.${key}`} label={titleOf(key, each, root)} required={needs} depth={depth + 1} />
          ))}
        </fieldset>
      );
    case "boolean":
      return (
        <fieldset class="schema-choice">
          <legend class={depth ? undefined : "unseen"}>{label}</legend>
          {[["true", "Yes"], ["false", "No"]].map(([value, text]) => (
            <label key={value} class="choice">
              <input type="radio" name={name} value={value} required={needed} defaultChecked={start === value} /> {text}
            </label>
          ))}
          {about}
        </fieldset>
      );
    case "choice":
      return stacked(
        <select name={name} required={needed}>
          <option value="">{needed ? "Choose …" : "–"}</option>
          {kind.options.map((option, at) => (
            <option key={at} value={String(at)} selected={option === given.default}>
              {String(option)}
            </option>
          ))}
        </select>,
      );
    case "choices":
      return (
        <fieldset class="schema-choice">
          <legend>{label}</legend>
          {kind.options.map((option, at) => (
            <label key={at} class="choice">
              <input type="checkbox" name={name} value={String(at)} /> {String(option)}
            </label>
          ))}
          {about}
        </fieldset>
      );
    case "integer":
    case "number":
      return stacked(
        <input
          name={name}
          type="number"
          step={kind.kind === "integer" ? "1" : "any"}
          min={schema.minimum ?? schema.exclusiveMinimum}
          max={schema.maximum}
          required={needed}
          defaultValue={start}
        />,
      );
    case "moment":
    case "day":
      return stacked(<input name={name} type={kind.kind === "day" ? "date" : "datetime-local"} step={kind.kind === "day" ? undefined : "1"} required={needed} />);
    case "text":
      return stacked(
        schema.maxLength && schema.maxLength <= 200 ? (
          <input name={name} maxLength={schema.maxLength} minLength={schema.minLength} pattern={schema.pattern} required={needed} defaultValue={start} autoComplete="off" />
        ) : (
          <textarea name={name} rows={2} maxLength={schema.maxLength} required={needed} defaultValue={start} />
        ),
      );
    case "lines":
      return stacked(<textarea name={name} rows={3} placeholder="One in each line" required={needed} />);
    case "json":
      return stacked(<textarea name={name} rows={4} spellcheck={false} placeholder="JSON" required={needed} />);
  }
}

function titleOf(key: string, schema: Schema, root: Schema): string {
  const text = resolve(schema, root).schema.title ?? key;
  return text.replace(/_/g, " ");
}

/** What was put into the fields; undefined where a field that may be left out is empty. */
export function valueOf(schema: Schema, form: FormData): unknown {
  return read(schema, schema, "value", form, 0);
}

function read(given: Schema, root: Schema, name: string, form: FormData, depth: number): unknown {
  const { schema, nullable } = resolve(given, root);
  const kind = kindOf(schema, root, depth);
  const text = ((form.get(name) as string | null) ?? "").trim();
  const nothing = nullable ? null : undefined;
  switch (kind.kind) {
    case "object":
      return Object.fromEntries(
        kind.fields
          .map(([key, each]) => [key, read(each, root, `${name}.${key}`, form, depth + 1)] as const)
          .filter(([, value]) => value !== undefined),
      );
    case "boolean":
      return text ? text === "true" : nothing;
    case "choice":
      return text ? kind.options[Number(text)] : nothing;
    case "choices":
      return form.getAll(name).map((each) => kind.options[Number(each)]);
    case "lines":
      return text ? text.split("\n").map((line) => line.trim()).filter(Boolean) : (nothing ?? []);
    case "integer":
    case "number":
    case "json":
      return text ? parse(text) : nothing;
    case "moment":
      return text ? new Date(text).toISOString() : nothing;
    case "day":
      return text || nothing;
    case "text":
      return text || nullable === false ? ((form.get(name) as string | null) ?? "") : nothing;
  }
}
