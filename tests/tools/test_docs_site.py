"""`make docs` builds a site that can be read without a network, with every page and every public name in it.

The short form is a site of two pages without public names, because the builder reads all of tasklib for one name; the
long one is the site of the documentation.  `make docs` refuses a site in which a public name is missing by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import docs_site

SHORT = {
    "index.md": "# tasklib\n\n**Guides**\n\n- [the first](guides/first.md#why)\n",
    "guides/first.md": "# First\n\n## Why\n\nA fencing token. [Back](../index.md)\n",
}


def write(source: Path, pages: dict[str, str]) -> None:
    for name, text in pages.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)


@pytest.fixture(scope="module", params=["short", pytest.param("long", marks=pytest.mark.chaos)])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, form: str) -> Path:
    site = tmp_path_factory.mktemp("docs") / "site"
    with pytest.MonkeyPatch.context() as patch:
        if form == "short":
            patch.setattr(docs_site, "stage", lambda source: write(source, SHORT))
            patch.setattr(docs_site, "api_pages", lambda _: [])
            patch.setattr(docs_site, "public_names", list)
        docs_site.main(site)
    return site


def test_every_page_is_there_as_html_and_as_markdown(site: Path, form: str) -> None:
    listed = (site / "llms.txt").read_text()
    found = [page.relative_to(docs_site.DOCS) for page in docs_site.DOCS.rglob("*.md")]
    for path in map(Path, SHORT) if form == "short" else found:
        html = path.with_suffix("") / "index.html" if path.name != "index.md" else Path("index.html")
        assert (site / html).exists(), path
        assert (site / path).exists(), path
        assert f"({path})" in listed


def test_a_public_name_without_its_signature_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "api" / "functions" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("".join(f"<h2>tasklib.{name}</h2>" for name in docs_site.public_names()))
    docs_site.refuse_missing_names(tmp_path)
    page.write_text(page.read_text().replace("tasklib.Retry", ""))
    with pytest.raises(SystemExit, match=r"no signature of: Retry"):
        docs_site.refuse_missing_names(tmp_path)
    page.write_text("Operation[Task]")
    with pytest.raises(SystemExit, match="generator"):
        docs_site.refuse_missing_names(tmp_path)


def test_search_finds_words_of_pages(site: Path) -> None:
    assert "fencing token" in (site / "search.json").read_text()


def test_a_dead_link_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = {"index.md": "# tasklib\n\n[nowhere](gone.md#x)\n"}
    monkeypatch.setattr(docs_site, "stage", lambda source: write(source, dead))
    monkeypatch.setattr(docs_site, "api_pages", lambda _: [])
    with pytest.raises(SystemExit, match=r"index\.md:3"):
        docs_site.main(tmp_path / "site")


def test_what_is_loaded_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="https://example.com/x.js"></script>')
    with pytest.raises(SystemExit, match=r"index\.html loads https://example\.com/x\.js"):
        docs_site.refuse_external(tmp_path)
