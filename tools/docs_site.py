"""Builds the documentation as a site that needs no network, from the Markdown that is read in the checkout.

Usage: python -m tools.docs_site [folder of the site]

The order of the pages is the order of the links in `docs/index.md` (`make check-docs` refuses a page without one); a
dead link is refused.  Beside each page lies its Markdown; `llms.txt` lists all pages, `llms-full.txt` holds them all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tasklib
from tools.docs_examples import BEFORE, BESIDE, NOT_IMPORTED
from tools.problems import ROOT

DOCS = ROOT / "docs"
PROJECT_PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "deploy/README.md": "production/deploying.md",
}
"""Pages outside `docs/` that are part of the site, and where they are there."""

SECTION = re.compile(r"^\*\*(.+?)\*\*\s*$")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+\.md)(#[^)\s]*)?\)")
ANY_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
EXTERNAL = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(https?://[^"'\s>]+)""")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the site: where its Markdown is, and what the index calls it."""

    path: str
    title: str
    section: str


def main(site: Path) -> None:
    """Build the site; status 1 where a link is dead, something is loaded from elsewhere or a name is missing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "docs"
        stage(source)
        pages = [*pages_of(source), *api_pages(source)]
        built = build(Path(folder), pages)
        add_markdown(source, pages, built)
        refuse_external(built)
        refuse_missing_names(built)
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(built, site)
    print(f"{len(pages)} pages in {os.path.relpath(site)}")


def stage(source: Path) -> None:
    """Copy everything into one folder, so that links between all pages work there as they do in the checkout."""
    shutil.copytree(DOCS, source)
    for outside, inside in PROJECT_PAGES.items():
        (source / inside).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / outside, source / inside)
    origin = {source / inside: ROOT / outside for outside, inside in PROJECT_PAGES.items()}
    for page in source.rglob("*.md"):
        where = origin.get(page, DOCS / page.relative_to(source))
        text = page.read_text("utf-8")
        parts = CODE.split(text)  # prose, code, prose, …
        parts[::2] = [ANY_LINK.sub(partial(_link, page=page, where=where, source=source), part) for part in parts[::2]]
        page.write_text("".join(parts), "utf-8")


def _link(match: re.Match[str], page: Path, where: Path, source: Path) -> str:
    """The same link where the pages are on the site; a link out of the site becomes plain text."""
    label, target = match[1], match[2]
    name, _, anchor = target.partition("#")
    if not name or ":" in name:
        return match[0]
    file = (where.parent / name).resolve()
    outside = file.relative_to(ROOT).as_posix()
    if outside in PROJECT_PAGES:
        there = source / PROJECT_PAGES[outside]
    elif file.is_relative_to(DOCS):
        there = source / file.relative_to(DOCS)
    else:
        return label
    return f"[{label}]({os.path.relpath(there, page.parent)}{'#' * bool(anchor)}{anchor})"


def pages_of(source: Path) -> list[Page]:
    """The pages in the order in which the index links them, each once, under the heading it is first linked from."""
    pages: dict[str, Page] = {"index.md": Page("index.md", "tasklib", "")}
    section = ""
    for line in (source / "index.md").read_text("utf-8").splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
        for title, target, _ in LINK.findall(line):
            pages.setdefault(target, Page(target, title[0].upper() + title[1:], section))
    return list(pages.values())


def api_pages(source: Path) -> list[Page]:
    """Pages made from signatures and docstrings, with their examples, which the tests run."""
    groups: dict[str, list[str]] = {"TaskQueue": ["TaskQueue"], "Functions": [], "Classes": [], "Errors": []}
    groups["Task functions and tq"] = [f"{each.__module__}.{each.__name__}"[8:] for each in NOT_IMPORTED]
    groups["Testing and integrations"] = list(BESIDE)
    for name in tasklib.__all__:
        value = getattr(tasklib, name)
        is_class = isinstance(value, type)
        if name != "TaskQueue" and callable(value):
            is_error = is_class and issubclass(value, BaseException)
            groups["Errors" if is_error else "Classes" if is_class else "Functions"].append(name)
    folder = source / "api"
    folder.mkdir()
    for title, names in groups.items():
        blocks = "\n\n".join(f"::: tasklib.{name}" for name in names)
        before = f"Each example begins with this:\n\n```python\n{BEFORE}```\n"
        (folder / api_file(title)).write_text(f"# {title}\n\n{before}\n{blocks}\n", "utf-8")
    return [Page(f"api/{api_file(title)}", title, "API") for title in groups]


def api_file(title: str) -> str:
    return f"{title.lower().replace(' ', '-')}.md"


def build(folder: Path, pages: list[Page]) -> Path:
    """Run the builder; its settings are `mkdocs.yml`, to which the pages and their order are added."""
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    for ours in ("src", "tools/docs_signatures.py"):
        settings = settings.replace(f"[{ours}]", f"[{json.dumps(str(ROOT / ours))}]")
    (folder / "mkdocs.yml").write_text(f"{settings}\nnav: {json.dumps(navigation(pages))}\n", "utf-8")
    # YAML: a JSON value is one too.
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = COLOUR.sub("", done.stdout + done.stderr.partition("Traceback")[0])
        sys.exit(f"{said}\nThe builder stopped; the lines above say where.")
    return folder / "site"


def navigation(pages: list[Page]) -> list[dict[str, object]]:
    """The pages by section, as the builder wants them."""
    sections: dict[str, list[dict[str, object]]] = {}
    for page in pages:
        sections.setdefault(page.section, []).append({page.title: page.path})
    entries: list[dict[str, object]] = []
    for section, inside in sections.items():
        entries += [{section.rstrip(" …:"): inside}] if section else inside
    return entries


def add_markdown(source: Path, pages: list[Page], site: Path) -> None:
    """Each page's Markdown beside it, a list of all pages, and all of them in one file."""
    lines, whole = ["# tasklib", "", "> Durable background tasks for Python on SQLite or PostgreSQL.", ""], []
    for page in pages:
        if page.section == "API":
            continue  # Made from signatures: its Markdown would only name them.
        text = (source / page.path).read_text("utf-8")
        copy = site / page.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, "utf-8")
        lines.append(f"- [{page.title}]({page.path})")
        whole.append(f"<!-- {page.path} -->\n\n{text}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (site / "llms-full.txt").write_text("\n".join(whole), "utf-8")


def refuse_external(site: Path) -> None:
    """The site works without a network: no page loads a script, a style, a font or an image from elsewhere."""
    for page in site.rglob("*.html"):
        found = [url for url in EXTERNAL.findall(page.read_text("utf-8")) if "localhost" not in url]
        if found:
            sys.exit(f"{page.relative_to(site)} loads {found[0]}; a site that is read offline must not.")


def public_names() -> list[str]:
    """What the pages made from signatures must hold."""
    return [name for name in tasklib.__all__ if callable(getattr(tasklib, name))]


def refuse_missing_names(site: Path) -> None:
    """Every public name has its signature, which shows what a method returns and not the generator behind it."""
    reference = "".join(page.read_text("utf-8") for page in (site / "api").rglob("index.html"))
    missing = [name for name in public_names() if f"tasklib.{name}" not in reference]
    if "Operation[" in reference:
        sys.exit("A signature shows the generator behind a method; tools/docs_signatures.py has not seen it.")
    if missing:
        sys.exit(f"The pages made from signatures have no signature of: {', '.join(missing)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site")
