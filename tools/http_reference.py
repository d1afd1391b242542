"""Writes `docs/reference/http.md` from the interface's own description, so that it says what the service does.

Usage: python -m tools.http_reference [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tasklib import TaskQueue
from tools.problems import ROOT, Problem, report

PAGE = ROOT / "docs/reference/http.md"
INTRODUCTION = """\
# HTTP interface

<!-- Written by `make snapshot` from the interface's description; edit the routes. -->

Every route, what it takes and what it answers. Start with [HTTP in five minutes](../guides/http.md); the
same in OpenAPI 3.1 is at `/openapi.json`. An invalid request gets a problem
(`application/problem+json`). The permission in brackets is what the caller's role must have.
"""
ROLES = {
    "public": "no token needed",
    "submit": "producer, operator, admin",
    "look": "every role",
    "read": "viewer, operator, admin",
    "work": "worker, admin",
    "operate": "operator, admin",
    "emit": "operator, worker, admin",
    "admin": "admin",
}


def main(arguments: list[str]) -> None:
    text = page()
    if "--check" in arguments:
        stale = not PAGE.exists() or PAGE.read_text() != text
        problems = [Problem(PAGE, 1, "is not what the interface is today")] if stale else []
        report(problems, "run `make snapshot` and commit the result with the change of the route.")
    else:
        PAGE.write_text(text)


def page() -> str:
    """The whole page."""
    with TaskQueue("sqlite:///:memory:") as queue:
        description = queue.asgi(auth=None).openapi()
    tags: dict[str, list[str]] = {}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            lines = tags.setdefault(operation.get("tags", ["other"])[0], [])
            lines += section(method, path, operation)
    parts = [f"\n## {tag.capitalize()}\n{''.join(line + chr(10) for line in lines)}" for tag, lines in tags.items()]
    schemas = description["components"]["schemas"]
    models = "".join(f"{line}\n" for name in sorted(schemas) for line in model(name, schemas[name]))
    return f"{INTRODUCTION}{''.join(parts)}\n## Objects\n{models}"


def section(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    """One route."""
    permission = operation.get("x-permission", "public")
    yield ""
    yield f"### `{method.upper()} {path}`"
    yield ""
    yield operation.get("description", "").strip()
    yield f"(`{permission}`: {ROLES[permission]})"
    given = [row for each in operation.get("parameters", ()) if (row := parameter(each))]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if given or body:
        yield ""
        yield "| takes | | |"
        yield "|---|---|---|"
        yield from given
        if body:
            yield f"| body | {kind(body)} | |"
    yield ""
    yield "| answers | |"
    yield "|---|---|"
    answers: dict[str, list[str]] = {}
    for status, response in operation["responses"].items():
        shapes = [kind(content.get("schema", {})) for content in response.get("content", {}).values()]
        answers.setdefault(", ".join(shapes) or cell(response["description"]), []).append(status)
    for shape, statuses in answers.items():
        yield f"| {', '.join(statuses)} | {shape} |"


def parameter(given: dict[str, Any]) -> str:
    """One parameter as a row of a table."""
    needed = " (needed)" if given.get("required") else ""
    text = given.get("description") or given["schema"].get("description", "")
    return f"| `{given['name']}` in {given['in']}{needed} | {kind(given['schema'])} | {cell(text)} |"


def model(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """One object with its fields."""
    yield ""
    yield f"### {name}"
    yield ""
    yield schema.get("description", "").strip() or "–"
    fields = schema.get("properties", {})
    if fields:
        yield ""
        yield "| field | | |"
        yield "|---|---|---|"
    for field, about in fields.items():
        needed = " (needed)" if field in schema.get("required", ()) else ""
        yield f"| `{field}`{needed} | {kind(about)} | {cell(about.get('description', ''))} |"


def kind(schema: dict[str, Any]) -> str:
    """A type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    name = schema.get("format") or schema.get("type", "anything")
    limits = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">", "exclusiveMaximum": "<", "maxLength": "length ≤"}
    return " ".join([name, *(f"{sign} {schema[key]:g}" for key, sign in limits.items() if key in schema)])


def cell(text: str) -> str:
    """A text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main(sys.argv[1:])
