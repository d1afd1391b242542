"""Fails unless everything that names the version agrees with a tag: `python -m tools.release v1.2.3`."""

from __future__ import annotations

import re
import sys

from tools import requirements
from tools.problems import ROOT


def main(tag: str) -> None:
    """Exit with a message that names every place which says otherwise."""
    wrong = disagreements(tag)
    if wrong:
        sys.exit(f"the tag {tag} does not fit: {'; '.join(wrong)}")
    print(f"{tag}: pyproject.toml, the package and the changelog agree")


def disagreements(tag: str) -> list[str]:
    """Every place that names another version than the tag, in words."""
    version = tag.removeprefix("v")
    if tag != f"v{version}" or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        return ["a tag is v and a version, as in v1.2.3 or v1.2.3rc1"]
    declared = requirements.pyproject()["project"]["version"]
    package = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/tasklib/__init__.py").read_text(), re.MULTILINE)
    changes = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    found = {"pyproject.toml says": declared, "tasklib.__version__ is": package[1] if package else "missing"}
    wrong = [f"{what} {value}" for what, value in found.items() if value != version]
    if version not in changes:
        wrong.append(f"CHANGELOG.md has no heading for it, only {', '.join(changes)}")
    return wrong


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
