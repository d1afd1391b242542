"""Fails on a dead link between our documents, on a page that docs/index.md does not link, on a commit that does not
exist, and on an address or path of one machine in any file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tools.problems import ROOT, Problem, project_files, report

LINK = re.compile(r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)|(?:href|src)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
FENCE = re.compile(r"^\s*(```+|~~~+)")
COMMIT = re.compile(r"(?<![\w#/-])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7}(?![\w/-])")

# Where packages come from is each machine's own setting, and nobody else has these folders.
FORBIDDEN = {
    r"pypi\.org/simple|files\.pythonhosted\.org|registry\.(?:npmjs|yarnpkg)\.": "address of a registry",
    r"(?:^|\s)--?(?:extra-)?index-url\b": "choice of a registry",
    r"(?<![\w.~/-])/(?:work|root)/": "path of one machine",
}


def find_problems(root: Path) -> list[Problem]:
    """Dead links and anchors in every Markdown file, forbidden text in every file."""
    problems: list[Problem] = []
    for path in project_files(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        problems += forbidden_text(path, text)
        if path.suffix == ".md":
            problems += dead_links(path, text)
    return [*problems, *unlisted_pages(root), *unknown_commits(root)]


def unknown_commits(root: Path) -> Iterator[Problem]:
    """Results on our pages name the commit they were measured at; a copy without the history cannot tell."""
    if _git(root, "rev-parse", "--is-shallow-repository").strip() != "false":
        return
    named = {
        (page, number, match[0])
        for page in (root / "docs").rglob("*.md")
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for match in COMMIT.finditer(line)
    }
    commits = sorted({commit for _, _, commit in named})
    told = _git(root, "cat-file", "--batch-check=%(objecttype)", given="".join(f"{each}\n" for each in commits))
    kinds = dict(zip(commits, told.splitlines(), strict=True))
    for page, at, each in sorted(named):
        if kinds[each] != "commit":
            yield Problem(page, at, f"no such commit: {each}")


def _git(folder: Path, *command: str, given: str = "") -> str:
    found = subprocess.run(["git", "-C", str(folder), *command], input=given, capture_output=True, text=True)
    return found.stdout


def unlisted_pages(root: Path) -> Iterator[Problem]:
    """Pages that nobody finds, and that the site has no place for: its order is that of the links in the index."""
    index = root / "docs" / "index.md"
    if not index.exists():
        return
    linked = {
        (index.parent / match[1].partition("#")[0]).resolve() for match in LINK.finditer(index.read_text()) if match[1]
    }
    for page in sorted(index.parent.rglob("*.md")):
        if page != index and page.resolve() not in linked:
            yield Problem(page, 1, "no link in docs/index.md")


def forbidden_text(path: Path, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in FORBIDDEN.items():
            if match := re.search(pattern, line):
                yield Problem(path, number, f"{what}: {match[0].strip()}")


def dead_links(path: Path, text: str) -> Iterator[Problem]:
    for number, line in prose_of(text):
        for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            target = unquote(match[1] or match[2] or match[3])
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            if not file.exists():
                yield Problem(path, number, f"dead link: {target}")
            elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
                yield Problem(path, number, f"no such heading: {target}")


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines outside fenced code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := FENCE.match(line):
            if not fence:
                fence = match[1]
            elif match[1].startswith(fence):
                fence = ""
        elif not fence:
            yield number, line


def anchors_of(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings, and those set by hand."""
    anchors: set[str] = set()
    for _, line in prose_of(path.read_text()):
        anchors.update(ANCHOR.findall(line))
        if match := HEADING.match(line):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            repeats = sum(1 for anchor in anchors if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor))
            anchors.add(f"{slug}-{repeats}" if repeats else slug)
    return anchors


if __name__ == "__main__":
    report(
        find_problems(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT),
        "link to a file or heading that exists, and to each page from docs/index.md; "
        "keep addresses and paths of one machine out of the project.",
    )
