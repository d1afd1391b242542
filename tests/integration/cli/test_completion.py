"""The shell completes commands, options and values, by the script that the program prints for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import python

ASK = """
eval "$(tasklib --show-completion)"
while read -r -a COMP_WORDS; do
    COMP_WORDS=("${COMP_WORDS[@]/_/}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _tasklib_completion tasklib
    echo "${COMPREPLY[@]}"
done
"""
COMPLETED = {
    "re": "replay retry redrive resume",
    "list --st": "--state",
    "list --state re": "retrying",
    "submit job --on-conflict _": "return replace raise",
    "schedules pa": "pause",
    "grants pro": "producer",
    "token create ci --role op": "operator",
}
"""What was typed, with _ for nothing yet, and what it may become."""


def test_bash_completes_commands_options_and_values() -> None:
    bash, folder = shutil.which("bash"), Path(sys.executable).parent
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", ASK],
        input="".join(f"tasklib {typed}\n" for typed in COMPLETED),
        env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == list(COMPLETED.values()), done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_given_a_script_too(shell: str) -> None:
    asked = os.environ | {"_TASKLIB_COMPLETE": f"source_{shell}"}
    done = python.run([sys.executable, "-m", "tasklib"], env=asked, capture_output=True, text=True, check=True)
    assert f"_TASKLIB_COMPLETE=complete_{shell}" in done.stdout
