"""Reads files of SQL statements as they are written in `storage/*/sql/`.

A statement is a line `-- name: verb_noun`, a line `-- what it does`, and its text, with parameters `:name`.
A block under `-- fragment: noun` replaces `{noun}` in every statement of the same folder. `{schema}` stands
for the quoted schema, `{channel}` for the name to notify on.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^-- (name|fragment): *(\w+)\n((?:(?!-- (?:name|fragment):).*(?:\n|\Z))*)", re.MULTILINE)
BUILT_IN = {"schema": "public", "channel": "channel"}

# Literals, quoted names, comments, bodies and casts match first, so that a colon in them is no parameter.
TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$ | ::
       | :(?P<parameter>[a-z_]\w*)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its fragments filled in."""

    path: Path
    line: int
    name: str
    text: str

    @property
    def purpose(self) -> str:
        """The comment right under the name; empty if there is none."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("--").strip() if first.startswith("--") else ""

    @property
    def only_here(self) -> bool:
        """True if a comment line says why only this database has it: `-- Only here: reason`."""
        return re.search(r"^-- Only here: \S", self.text, re.MULTILINE) is not None

    @property
    def parameters(self) -> set[str]:
        return {match["parameter"] for match in TOKEN.finditer(self.text) if match["parameter"]}

    def numbered(self) -> str:
        """The text with `$1`, `$2` … for its parameters."""
        numbers = {name: f"${number}" for number, name in enumerate(sorted(self.parameters), 1)}
        return TOKEN.sub(lambda match: numbers.get(match["parameter"]) or match[0], self.text)

    def steps(self) -> list[str]:
        """The text split where SQLite sees a complete statement: its form of an operation may be several."""
        steps, step = [], ""
        for piece in re.findall(r"[^;]*;|[^;]+$", self.text):
            step += piece
            if sqlite3.complete_statement(step):
                steps.append(step)
                step = ""
        rest = re.sub(r"--[^\n]*", "", step).strip()
        return [*steps, step] if rest else steps


def read_statements(folder: Path) -> list[Statement]:
    """Every statement of a folder's files, in order."""
    texts = {path: path.read_text() for path in sorted(folder.glob("*.sql"))}
    blocks = [(path, match) for path, text in texts.items() for match in BLOCK.finditer(text)]
    fragments = BUILT_IN | {match[2]: match[3].strip() for _, match in blocks if match[1] == "fragment"}
    return [
        Statement(path, texts[path].count("\n", 0, match.start()) + 1, match[2], fill(match[3], fragments))
        for path, match in blocks
        if match[1] == "name"
    ]


def fill(text: str, fragments: dict[str, str]) -> str:
    """`text` with each `{name}` replaced, also inside fragments; an unknown one stays, to be refused."""
    for name, replacement in fragments.items():
        text = text.replace(f"{{{name}}}", replacement)
    return fill(text, fragments) if any(f"{{{name}}}" in text for name in fragments) else text
