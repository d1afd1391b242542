"""`make docs` builds a site that can be read without a network, with every page and every public name in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tasklib
from tools import docs_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("docs") / "site"
    docs_site.main(site)
    return site


def test_every_page_is_there_as_html_and_as_markdown(site: Path) -> None:
    listed = (site / "llms.txt").read_text()
    for page in docs_site.DOCS.rglob("*.md"):
        path = page.relative_to(docs_site.DOCS)
        html = path.with_suffix("") / "index.html" if path.name != "index.md" else Path("index.html")
        assert (site / html).exists(), path
        assert (site / path).exists(), path
        assert f"({path})" in listed


def test_every_public_name_has_its_signature(site: Path) -> None:
    reference = "".join(page.read_text() for page in (site / "api").rglob("index.html"))
    missing = [
        name for name in tasklib.__all__ if callable(getattr(tasklib, name)) and f"tasklib.{name}" not in reference
    ]
    assert missing == []
    assert "Operation[" not in reference  # what a method returns is shown, not the generator behind it


def test_search_finds_words_of_pages(site: Path) -> None:
    assert "fencing token" in (site / "search.json").read_text()


def test_a_dead_link_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_dead_link(source: Path) -> None:
        source.mkdir()
        (source / "index.md").write_text("# tasklib\n\n[nowhere](gone.md#x)\n")

    monkeypatch.setattr(docs_site, "stage", with_dead_link)
    with pytest.raises(SystemExit, match=r"index\.md:3"):
        docs_site.main(tmp_path / "site")


def test_what_is_loaded_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="https://example.com/x.js"></script>')
    with pytest.raises(SystemExit, match=r"index\.html loads https://example\.com/x\.js"):
        docs_site.refuse_external(tmp_path)
