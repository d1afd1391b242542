"""The Python of README and docs as modules that type checkers read, each line where it is in its document."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.acceptance.documents import FILE, NOT_RUN, ROOT, Block, blocks_of, documents

PACKAGE = "documents"
DJANGO = ("integrations/django.md", "migrating/django-tasks-db.md")
WITHOUT_TYPES = tuple(ROOT / "docs" / page for page in DJANGO)
"""Nothing to check: Django brings no types, and what its pages show are files of a project."""

MIGRATING = ROOT / "docs" / "migrating"
"""Where the first block is the other library's, which may have no types."""


def write_documents(folder: Path) -> dict[str, Path]:
    """Write the modules into the folder; each one's name in the package, and the document it is from."""
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    written: dict[str, Path] = {}
    for document in documents():
        if document not in WITHOUT_TYPES:
            for name, blocks in modules_of(document).items():
                (package / f"{name}.py").write_text(source_of(blocks, name))
                written[f"{name}.py"] = document
    return written


def modules_of(document: Path) -> dict[str, list[Block]]:
    """One module for a page, and one for each file that a reader is told to write."""
    page = re.sub(r"\W", "_", str(document.relative_to(ROOT).with_suffix("")))
    modules: dict[str, list[Block]] = defaultdict(list)
    blocks = blocks_of(document, "python")
    for block in blocks[1:] if document.parent == MIGRATING else blocks:
        if block.remark.startswith(FILE):
            modules[f"{page}__{Path(block.remark.removeprefix(FILE)).stem}"].append(block)
        elif not block.remark.startswith(NOT_RUN):
            modules[page].append(block)
    return modules


def source_of(blocks: list[Block], name: str) -> str:
    """The blocks one after the other; inside a coroutine if one of them awaits, as in a notebook."""
    awaits = any(re.search(r"^(?:\w+ = |print\()?(?:await|async with|async for)\b", each.text, re.M) for each in blocks)
    lines = ["async def document() -> None:"] if awaits else []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += [f"    {line}" if awaits and line else line for line in block.text.splitlines()]
    # A file of the same page is imported by its name there.
    page = name.partition("__")[0]
    return re.sub(r"^from (small) import", rf"from {PACKAGE}.{page}__\1 import", "\n".join(lines), flags=re.M) + "\n"
