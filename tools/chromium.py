"""Finds the Chromium in which the dashboard is tested; installs Debian's where that can be done without asking.

Its headless shell comes first: the same browser without windows and menus, which needs a third less of the processor.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
PACKAGES = ("chromium-headless-shell", "chromium")
INSTALL = ("apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends")
REMEDY = "install Chromium (Debian, Ubuntu: apt install chromium), or name one in TASKLIB_TEST_CHROMIUM"


def find() -> str | None:
    """Where Chromium is on this machine, or None."""
    named = os.environ.get("TASKLIB_TEST_CHROMIUM")
    found = [named, *(shutil.which(name) for name in NAMES), MACOS]
    return next((path for path in found if path and Path(path).exists()), None)


def find_or_install() -> str | None:
    """Where it is; a container in which we may install packages gets one."""
    if (found := find()) or sys.platform != "linux" or not shutil.which("apt-get") or os.geteuid() != 0:
        return found
    with open(Path(tempfile.gettempdir()) / "tasklib-chromium.lock", "w") as lock:
        # Test processes that start together would stand in each other's way in apt.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return find() or _install()


def _install() -> str | None:
    print("Installing Chromium for the tests of the dashboard …", flush=True)
    installs = [[*INSTALL, package, "fonts-dejavu-core"] for package in PACKAGES]
    for command in (*installs, ["apt-get", "update", "--quiet=2"], *installs):
        subprocess.run(command, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)
        if found := find():
            return found
    return None
