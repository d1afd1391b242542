"""Markdown files as tests see them: their code blocks, each with its place and what a comment above it says.

<!-- example: not run, because … -->
<!-- example: runs until stopped -->
<!-- example: file app.py -->
```python
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = "not run, because "
RUNS_UNTIL_STOPPED = "runs until stopped"
FILE = "file "
"""Before the name of the file in which a reader puts the block, after what is there already."""

_FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
_COMMENT = re.compile(r"^<!-- (example|sql): (.+) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a document."""

    path: Path
    line: int
    """The line of its first line of code, as an editor counts."""
    language: str
    text: str
    remark: str = ""
    """What the comment above it says."""

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    """README and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(path: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a document, in order, of the languages given."""
    found: list[Block] = []
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence:
            end = lines.index(fence[1], number + 1)
            comment = _COMMENT.match(lines[number - 1]) if number else None
            text = "\n".join(lines[number + 1 : end]) + "\n"
            found.append(Block(path, number + 2, fence[2], text, comment[2] if comment else ""))
            number = end
        number += 1
    return [block for block in found if block.language in languages]


def tables_of(path: Path) -> list[list[list[str]]]:
    """Every table of a document as rows of cells, without its heading and its line of dashes."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in path.read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif not inside:
            inside = True
            tables.append([])
        elif not re.fullmatch(r"[|\s:-]+", line):
            tables[-1].append([cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return tables
