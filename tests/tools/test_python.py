"""Programs that are forked are like those that are started: what they are given, what they say, how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tasklib import TaskQueue
from tests.fixtures import python

LOOK = """
import json, os, signal, sys
print(json.dumps({
    "argv": sys.argv, "folder": os.getcwd(), "given": sys.stdin.read(), "path": sys.path, "name": __name__,
    "environment": {k: v for k, v in os.environ.items() if k != "LC_CTYPE"}, "parent": os.getppid(),
    "signals": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "stdin": [sys.stdin.encoding.lower(), sys.stdin.errors, type(sys.stdin.buffer).__name__],
    "buffers": [type(each.buffer).__name__ for each in (sys.stdout, sys.stderr)],
    "stdout": [sys.stdout.encoding.lower(), sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.write_through],
    "stderr": [sys.stderr.encoding.lower(), sys.stderr.errors, sys.stderr.line_buffering, sys.stderr.write_through],
    "files": sorted(os.listdir("/proc/self/fd"))[:-1], "session": os.getsid(0) == os.getpid(),
    "main": sorted(vars(sys.modules["__main__"])), "file": globals().get("__file__"), "tests": "tests" in sys.modules,
}, sort_keys=True))
sys.stderr.write("said\\n")
"""
NAMES = """
from pathlib import Path
import tasklib

@tasklib.task(isolation="process")
def name() -> list[str]:
    found, pid = [], "self"
    while len(found) < 4:
        found.append(Path(f"/proc/{pid}/comm").read_text().strip())
        pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return found
"""
FORMS = [["-c", LOOK], ["look.py"], ["-m", "look"], ["-P", "-m", "look"]]

pytestmark = pytest.mark.skipif(python.OWN_INTERPRETER, reason="every interpreter is started anew")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "look.py").write_text(LOOK)
    return tmp_path


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0])
@pytest.mark.parametrize("session", [False, True])
def test_it_is_given_what_it_would_be_given(folder: Path, form: list[str], session: bool) -> None:
    command = [sys.executable, *form, "one", "two"]
    environment = {**os.environ, "COLOUR": "blue", "PYTHONPATH": f"{folder / 'more'}{os.pathsep}{folder}"}
    environment |= {"PYTHONUNBUFFERED": "1"} if session else {}
    passed = os.pipe()
    options = {"cwd": folder, "env": environment, "start_new_session": session, "pass_fds": passed}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

    said = []
    for start in (subprocess.Popen, python.Forked):
        with start(command, **options, **pipes, text=True) as process:
            out, err = process.communicate("hello")
            said.append(json.loads(out) | {"err": err, "code": process.returncode})
    for file in passed:
        os.close(file)

    assert said[1] == said[0]


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('no')",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('why')",
        "import os; os.abort()",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import atexit; atexit.register(print, 'last')",
    ],
)
def test_it_ends_as_it_would_end(text: str) -> None:
    command = [sys.executable, "-c", text]
    told = subprocess.run(command, capture_output=True, text=True)
    forked = python.run(command, capture_output=True, text=True)
    assert (forked.returncode, forked.stdout, forked.stderr) == (told.returncode, told.stdout, told.stderr)


def test_it_is_a_child_that_can_be_signalled_and_waited_for() -> None:
    with python.popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert isinstance(process, python.Forked)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


@pytest.mark.backends("sqlite-file")
def test_what_a_worker_starts_is_forked_too(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "names.py").write_text(NAMES)
    command = [sys.executable, "-m", "tasklib", "worker", "names", "--processes", "1", "--database-url", database_url]
    with TaskQueue(database_url) as queue:
        task_id = queue.enqueue("name")
        worker = python.popen(command, cwd=tmp_path)
        try:
            task = queue.wait(task_id, timeout=180)
        finally:
            worker.terminate()
            assert worker.wait() == 0

    # The child process, the worker process, its supervisor, and the test.
    assert task.result is not None
    *ours, outside = task.result["value"]
    assert ours == ["child_main", "tasklib", "tasklib"]
    assert outside == Path("/proc/self/comm").read_text().strip()


def test_two_are_not_alike() -> None:
    text = (
        "import random, uuid, uuid_utils; print(random.random(), uuid.uuid4(), uuid_utils.uuid7(), uuid_utils.uuid4())"
    )
    one, two = (python.run([sys.executable, "-c", text], capture_output=True, text=True).stdout for _ in range(2))
    assert not set(one.split()) & set(two.split())


def test_a_nursery_ends_with_an_asker_that_is_killed_while_it_asks() -> None:
    nursery = python.Nursery.start()
    with open(os.devnull) as file:
        socket.send_fds(nursery._socket, [(100).to_bytes(8, "big")], [file.fileno()])
    nursery._socket.sendall(b"{")
    nursery.close()
    assert nursery._process is not None
    assert nursery._process.returncode == 0
