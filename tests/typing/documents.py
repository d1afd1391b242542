"""The Python of README and docs as modules that type checkers read, each line where it is in its document."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.acceptance.documents import FILE, ROOT, Block, blocks_of, documents

PACKAGE = "documents"
MIGRATING = ROOT / "docs" / "migrating"
"""Where the first block is the other library's program."""

BEFORE = {"mysite/settings.py": "INSTALLED_APPS: list[str] = []"}
"""What stands in a file before a reader adds to it."""
FILES = r"^from (?:shop\.)?(small|tasks) import"
"""How a file of a page is imported by another one: by its name there."""
NOT_IN_STUBS = "@task(max_retries=5, timeout_seconds=30)"
"""Django 6.1 hands these to the backend's task; its stubs refuse them."""


def write_documents(folder: Path) -> dict[str, Path]:
    """Write the modules into the folder; each one's name in the package, and the document it is from."""
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    written: dict[str, Path] = {}
    for document in documents():
        for name, blocks in modules_of(document).items():
            (package / f"{name}.py").write_text(source_of(blocks, name))
            written[f"{name}.py"] = document
    return written


def modules_of(document: Path) -> dict[str, list[Block]]:
    """One module for a page, and one for each file that a reader is told to write."""
    page = re.sub(r"\W", "_", str(document.relative_to(ROOT).with_suffix("")))
    modules: dict[str, list[Block]] = defaultdict(list)
    for number, block in enumerate(blocks_of(document, "python")):
        if block.remark.startswith(FILE):
            modules[f"{page}__{Path(block.remark.removeprefix(FILE)).stem}"].append(block)
        elif document.parent == MIGRATING and number == 0:
            modules[f"{page}__there"].append(block)
        else:
            modules[page].append(block)
    return modules


def source_of(blocks: list[Block], name: str) -> str:
    """The blocks one after the other; inside a coroutine if one of them awaits, as in a notebook."""
    awaits = any(re.search(r"^(?:\w+ = |print\()?(?:await|async with|async for)\b", each.text, re.M) for each in blocks)
    lines = ["async def document() -> None:"] if awaits else [BEFORE.get(blocks[0].remark.removeprefix(FILE), "")]
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += [f"    {line}" if awaits and line else line for line in block.text.splitlines()]
    # A file of the same page is imported by its name there.
    imported = rf"from {PACKAGE}.{name.partition('__')[0]}__\1 import"
    return re.sub(FILES, imported, "\n".join(lines).replace(NOT_IN_STUBS, "@task"), flags=re.M) + "\n"
