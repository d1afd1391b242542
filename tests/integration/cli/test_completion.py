"""The shell completes commands, options and values, by the script that the program prints for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
eval "$(tasklib --show-completion)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tasklib_completion tasklib
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    "typed, completed",
    [
        (["re"], {"retry", "redrive", "resume"}),
        (["list", "--st"], {"--state"}),
        (["list", "--state", "re"], {"retrying"}),
        (["submit", "job", "--on-conflict", ""], {"return", "replace", "raise"}),
        (["schedules", "pa"], {"pause"}),
        (["grants", "pro"], {"producer"}),
        (["token", "create", "ci", "--role", "op"], {"operator"}),
    ],
)
def test_bash_completes(typed: list[str], completed: set[str]) -> None:
    bash, folder = shutil.which("bash"), Path(sys.executable).parent
    assert bash is not None
    command = [bash, "--norc", "-c", ASK, "bash", "tasklib", *typed]
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == completed, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_given_a_script_too(shell: str) -> None:
    asked = os.environ | {"_TASKLIB_COMPLETE": f"source_{shell}"}
    done = subprocess.run([sys.executable, "-m", "tasklib"], env=asked, capture_output=True, text=True, check=True)
    assert f"_TASKLIB_COMPLETE=complete_{shell}" in done.stdout
