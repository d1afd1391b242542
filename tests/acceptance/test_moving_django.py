"""The page for those who come from django-tasks-db: its two programs, one after the other in one database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.documents import FILE, ROOT, blocks_of
from tests.acceptance.run_document import PRINTED, check_output

PAGE = ROOT / "docs" / "migrating" / "django-tasks-db.md"


def test_both_programs_do_what_the_page_says(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for block in blocks_of(PAGE, "python"):
        file = tmp_path / block.remark.removeprefix(FILE)
        file.write_text(block.text)
        done = subprocess.run(
            [sys.executable, str(file)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stderr
        check_output(PRINTED.findall(block.text), done.stdout.splitlines())
