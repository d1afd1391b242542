"""Builds the wheel and the sdist and tries them: the same bytes twice, and installed with pip, uv and pipx.

Usage: python -m tools.package [--build-only] [FOLDER]

The files are left in FOLDER, `dist` by default.  Each installation is made in an environment of its own, and must run
a task on SQLite, refuse a PostgreSQL URL with the name of the extra, and have the dashboard.  What could not be tried
here is said.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import dashboard
from tools.problems import ROOT
from tools.versions import pythons

SMOKE = """
import pathlib, sys, tasklib
without_gil = "t" in sys.abiflags
queue = tasklib.TaskQueue("sqlite:///:memory:")
task_id = queue.task(name="answer")(lambda: 42).submit()
queue.process_batch()
assert task_id.wait() == 42
assert "psycopg" not in sys.modules
assert (pathlib.Path(tasklib.__file__).parent / "http" / "static" / "index.html").exists()
try:
    tasklib.TaskQueue("postgresql://localhost/app")
except tasklib.ConfigurationError as error:
    assert "tasklib-queue[postgres]" in str(error)
else:
    sys.exit("a PostgreSQL URL was accepted without its driver")
assert not (without_gil and sys._is_gil_enabled()), "something that was imported has turned the GIL on"
print(tasklib.__version__)
"""

Trial = Callable[[Path, Path], None]
"""Installs a file in a folder of its own, and tries it."""


class NotHere(Exception):
    """Something that this machine does not have; the message says what."""


def main(arguments: list[str]) -> int:
    """Build and try everything; 1 if anything went wrong."""
    folders = [each for each in arguments if not each.startswith("--")]
    target = (Path(folders[0]) if folders else ROOT / "dist").resolve()
    files = build_twice(target)
    for file in files:
        print(f"built    {file.name}, the same bytes twice")
    if "--build-only" in arguments:
        return 0
    failed = 0
    for label, file, trial in trials(*files):
        try:
            with tempfile.TemporaryDirectory() as folder:
                trial(file, Path(folder))
            print(f"passed   {label}", flush=True)
        except NotHere as missing:
            print(f"not run  {label}: {missing}")
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"FAILED   {label}\n{error.stdout}{error.stderr}")
    return 1 if failed else 0


def build_twice(target: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built in the folder; a RuntimeError if a second build gives other bytes."""
    shutil.rmtree(target, ignore_errors=True)
    made = build(target)
    with tempfile.TemporaryDirectory() as folder:
        compare_dashboards(Path(folder) / "dashboard")
        # Neither the time zone, nor the umask, nor where it is built may change anything.
        again = build(Path(folder) / "again", {"TZ": "Asia/Tokyo"}, umask=0o077)
        unpacked = Path(folder) / "unpacked"
        unpacked.mkdir()
        subprocess.run(["tar", "-x", "-f", made[1], "-C", unpacked], check=True)
        (source,) = unpacked.iterdir()
        from_sdist = build(Path(folder) / "from-sdist", source=source)
        for one, other in [*zip(made, again, strict=True), *zip(made, from_sdist, strict=True)]:
            if not filecmp.cmp(one, other, shallow=False):
                raise RuntimeError(f"{one.name} is not the same when it is built again: {differences(one, other)}")
    return made


def compare_dashboards(target: Path) -> None:
    """Build the dashboard anew in another folder; a RuntimeError if any file differs from what the wheel has."""
    dashboard.install()
    dashboard.npm("run", "--silent", "build", "--", "--outDir", str(target), "--emptyOutDir", "--logLevel", "warn")
    built = {path.relative_to(dashboard.BUILT) for path in dashboard.BUILT.rglob("*") if path.is_file()}
    names = sorted(map(str, built - {dashboard.MARK.relative_to(dashboard.BUILT)}))
    _, differing, missing = filecmp.cmpfiles(dashboard.BUILT, target, names, shallow=False)
    if differing or missing:
        raise RuntimeError(f"the dashboard is not the same when it is built again: {', '.join([*differing, *missing])}")


def build(
    target: Path, environment: dict[str, str] | None = None, source: Path = ROOT, umask: int = 0o022
) -> tuple[Path, Path]:
    """The wheel and the sdist of a source folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target)],
        cwd=source,
        env=os.environ | (environment or {}),
        umask=umask,
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


def differences(one: Path, other: Path) -> str:
    """Which members of two wheels differ."""
    if one.suffix != ".whl":
        return "compare them with diffoscope"
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names = sorted({*first.namelist(), *second.namelist()})
        contents = [{each.filename: each.CRC for each in archive.infolist()} for archive in (first, second)]
        found = [name for name in names if contents[0].get(name) != contents[1].get(name)]
    return ", ".join(found) or "only times or rights"


def trials(wheel: Path, sdist: Path) -> Iterator[tuple[str, Path, Trial]]:
    """What is tried: a label, the file, and how."""
    found = pythons.find()
    for version in pythons.SUPPORTED:
        yield f"pip, wheel, Python {version}", wheel, with_pip(found.get(version))
    yield "pip, sdist", sdist, with_pip(Path(sys.executable))
    yield "uv, wheel", wheel, with_uv
    yield "uv, sdist", sdist, with_uv
    yield "uvx, wheel", wheel, with_uvx
    yield "pipx, wheel", wheel, with_pipx
    yield "pip, wheel, free-threaded Python 3.14t", wheel, with_pip(_which("python3.14t"))


def with_pip(python: Path | None) -> Trial:
    """An installation by the pip of an interpreter."""

    def install(file: Path, folder: Path) -> None:
        if python is None:
            raise NotHere("this Python was not found")
        _run(str(python), "-m", "venv", str(folder / "venv"))
        interpreter = folder / "venv" / "bin" / "python"
        _run(str(interpreter), "-m", "pip", "install", "-q", "--constraint", str(ROOT / "constraints.txt"), str(file))
        _try(interpreter, folder)

    return install


def with_uv(file: Path, folder: Path) -> None:
    """An installation by uv."""
    uv = _tool("uv", folder)
    _run(uv, "venv", "--python", sys.executable, str(folder / "venv"))
    interpreter = folder / "venv" / "bin" / "python"
    _run(uv, "pip", "install", "--python", str(interpreter), str(file))
    _try(interpreter, folder)


def with_uvx(file: Path, folder: Path) -> None:
    """The program, run from a wheel without installing it."""
    _run(_tool("uv", folder), "tool", "run", "--python", sys.executable, "--from", str(file), "tasklib", "--version")


def with_pipx(file: Path, folder: Path) -> None:
    """The program, installed by pipx."""
    pipx = _tool("pipx", folder)
    homes = {
        "PIPX_HOME": str(folder / "home"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "PIPX_MAN_DIR": str(folder / "man"),
    }
    _run(pipx, "install", "--python", sys.executable, str(file), environment=homes)
    _run(str(folder / "bin" / "tasklib"), "stats", "--dsn", f"sqlite:///{folder}/tasks.db")


def _try(interpreter: Path, folder: Path) -> None:
    _run(str(interpreter), "-I", "-W", "error", "-c", SMOKE, folder=folder)
    _run(str(interpreter.parent / "tasklib"), "--version", folder=folder)
    _run(str(interpreter.parent / "tasklib"), "doctor", "--dsn", "sqlite:///:memory:", folder=folder, allowed=(0, 1))


def _tool(name: str, folder: Path) -> str:
    """A program that the machine has, or else from an environment of its own."""
    if found := _which(name):
        return str(found)
    made = folder / f"with-{name}"
    venv.create(made, with_pip=True)
    done = subprocess.run([made / "bin" / "python", "-m", "pip", "install", "-q", name], capture_output=True)
    if done.returncode:
        raise NotHere(f"{name} cannot be installed here")
    return str(made / "bin" / name)


def _which(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _run(
    *command: str,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
    allowed: tuple[int, ...] = (0,),
) -> None:
    done = subprocess.run(
        command,
        cwd=folder or tempfile.gettempdir(),
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
    )
    if done.returncode not in allowed:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
