"""docs/guides/http.md, typed as a newcomer types it: a real server, and a shell with curl."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.documents import ROOT, blocks_of
from tests.fixtures import python
from tests.integration.http.serving import Server

GUIDE = ROOT / "docs" / "guides" / "http.md"


@pytest.mark.backends("sqlite-file")
def test_the_guide_does_what_it_says(database_url: str, tmp_path: Path) -> None:
    """Every curl command answers with success."""
    blocks = blocks_of(GUIDE, "curl")
    assert len(blocks) >= 8
    known = {"ID": "", "TOKEN": ""}
    with Server(database_url, tmp_path) as server:
        for block in blocks:
            if "$TOKEN" in block.text:
                made = python.run(
                    [*server.tasklib, "token", "create", "me"], env=server.environment, capture_output=True
                )
                known["TOKEN"] = made.stdout.decode().strip()
            for command in re.split(r"\n(?=curl)", block.text.strip()):
                fitted = command.replace("http://localhost:8000", server.url).replace(
                    "curl -s", "curl -s --fail-with-body", 1
                )
                done = subprocess.run(
                    ["bash", "-c", fitted], env=os.environ | known, capture_output=True, text=True, timeout=180
                )
                assert done.returncode == 0, (block.place, command, done.stdout, done.stderr)
                if not known["ID"]:
                    known["ID"] = json.loads(done.stdout)["id"]
