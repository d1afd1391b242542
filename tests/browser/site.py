"""A service with its dashboard, and if wanted a worker, in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

import uvicorn
from starlette.applications import Starlette

from tasklib import Abort, AsyncTaskContext, Config, TaskContext, TaskQueue
from tasklib.worker import Worker, WorkerSettings

FAILING = "ledger." + "reconcile_" * 16
"""A name that is wider than a screen, of a task that fails."""


@dataclass
class Verdict:
    """What a person decides about an order."""

    ok: bool
    carrier: Literal["post", "courier"]
    parcels: int = 1
    note: str | None = None


class Server(uvicorn.Server):
    """Leaves the signals to the test run."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Site:
    """Starts on entering; `queue` acts on the same database from the test."""

    def __init__(self, database_url: str, *, auth: Any = None, prefix: str = "", works: bool = True) -> None:
        self.config = Config(
            database_url=database_url,
            base_retry_delay_seconds=3600,
            heartbeat_interval_seconds=1,
            retention="completed=7d",
        )
        self.queue = TaskQueue(self.config)
        self.gate = threading.Event()
        """Slow tasks wait for it."""
        self._options = (auth, prefix, works)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://localhost:{self.port}{prefix}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.queue.close()

    def start(self) -> None:
        """Serve, from now on; again on the same port after a stop."""
        if self._listening.fileno() == -1:
            self._listening = socket.create_server(("127.0.0.1", self.port))
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(180)

    def stop(self) -> None:
        """End the service and the worker; the data stay."""
        self.gate.set()
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(180)
        assert not self._thread.is_alive()
        self._listening.close()

    async def _run(self, ready: threading.Event) -> None:
        auth, prefix, works = self._options
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        queue = TaskQueue(self.config)
        define_tasks(queue, self.gate)
        app: Any = queue.asgi(auth=auth)
        if prefix:
            outer = Starlette()
            outer.mount(prefix, app)
            app = outer
        settings = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=0)
        server, worker = Server(settings), Worker(queue, WorkerSettings(concurrency=8, signals=False, grace_seconds=0))
        serving = asyncio.create_task(server.serve(sockets=[self._listening]))
        working = asyncio.create_task(worker.run()) if works else None
        ready.set()
        await self._over.wait()
        server.should_exit = True
        await serving
        if working:
            worker.stop()
            await working
        await queue.aclose()


def define_tasks(queue: TaskQueue, gate: threading.Event) -> None:
    """One kind of task for each way in which a task can go."""

    @queue.task(name="email.send", max_retries=2)
    async def send(to: str, subject: str = "Hello") -> dict[str, str]:
        return {"messageId": f"message for {to}"}

    @queue.task(name="payment.charge", max_retries=0)
    async def charge(order: int) -> None:
        raise Abort(f"order {order}: card declined")

    @queue.task(name=FAILING, max_retries=0)
    async def reconcile() -> None:
        raise Abort("the sums differ")

    @queue.task(name="page.crawl", max_retries=3)
    async def crawl(url: str) -> None:
        raise ConnectionResetError(f"{url} hung up")

    @queue.task(name="disk.scan", timeout_seconds=0.2, max_retries=0)
    def scan(disk: str) -> None:
        gate.wait()

    @queue.task(name="image.resize")
    async def resize(picture: str, ctx: TaskContext) -> str:
        ctx.progress(0.4, "tile 4 of 10")
        for tile in range(40):
            ctx.log.info("tile %d is read", tile)
        ctx.log.info("resizing %s", picture)
        await asyncio.to_thread(gate.wait)
        ctx.log.info("saved")
        return picture

    @queue.task(name="label.print", max_retries=0)
    async def label(parcel: int) -> int:
        if parcel == 3:
            raise Abort("no paper")
        return parcel

    def reserve(order: int) -> str:
        return f"shelf {order}"

    @queue.task(name="shelf.release")
    async def release(order: int) -> None: ...

    @queue.task(name="parcel.ship")
    async def ship(ctx: AsyncTaskContext, order: int) -> str:
        shelf = await ctx.options(undo=release.bind(order)).step(reserve, order)
        await ctx.map(label, ({"parcel": n} for n in range(5)))
        verdict = await ctx.wait("approval", Verdict, ask=f"Ship order {order} from {shelf}?")
        return f"{verdict.carrier}: {verdict.parcels}" if verdict.ok else f"refused: {verdict.note}"
