"""A TCP proxy that can refuse and cut connections, or stop forwarding without closing anything, as networks do.

Or close a connection in the worst moment: when PostgreSQL has done what it was asked and its reply is under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from tests.fixtures.waiting import PATIENCE

READY = b"Z\0\0\0\5I"
"""How a reply of PostgreSQL ends when no transaction is open."""


@dataclass(eq=False)
class Pair:
    """One connection through the proxy."""

    heard: bytes = b""
    """What the client has said so far."""
    is_frozen: bool = False
    is_losing: bool = False
    """The next reply is to be lost."""
    reply: bytes = b""
    ends: list[asyncio.StreamWriter] = field(default_factory=list)


class Proxy:
    """Forwards to a port of this machine, from a thread of its own."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self.port = 0
        self._target = target
        self._host = host
        self._pairs: list[Pair] = []
        self._is_cut = False
        self._lost: Callable[[Pair, bytes], bool] | None = None
        self._losing: tuple[bytes, ...] = ()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def freeze(self, chosen: Callable[[Pair], bool]) -> int:
        """From now on swallow what the chosen connections send, and say nothing; returns how many they were."""
        found = [pair for pair in self._pairs if not pair.is_frozen and chosen(pair)]
        for pair in found:
            pair.is_frozen = True
        return len(found)

    def cut(self) -> None:
        """Break every connection and refuse new ones, as a server that is away does."""
        self._is_cut = True
        asyncio.run_coroutine_threadsafe(self._abort(lambda _: True), self._loop).result(PATIENCE)

    def heal(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    def cut_client(self, chosen: Callable[[Pair], bool]) -> int:
        """Break the client's side of the chosen connections, of which the server hears nothing; returns how many."""
        found = [pair for pair in self._pairs if not pair.is_frozen and chosen(pair)]
        self.freeze(lambda pair: pair in found)
        asyncio.run_coroutine_threadsafe(self._abort(lambda pair: pair in found, ends=1), self._loop).result(PATIENCE)
        return len(found)

    def lose_answer(self, chosen: Callable[[Pair, bytes], bool]) -> None:
        """Let the next request that is chosen through and break its connection, so that its answer is never heard."""
        self._lost = chosen

    @property
    def has_lost(self) -> bool:
        return self._lost is None

    def lose_reply_to(self, *words: bytes) -> None:
        """Close the next connection that says one of the words once the server has done it, before it can tell."""
        self._losing = words

    @property
    def has_lost_it(self) -> bool:
        """Whether the reply that was to be lost is lost."""
        return not self._losing

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, self._host, 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        pair = Pair(ends=[writer])
        self._pairs.append(pair)
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        pair.ends.append(server_writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(pair, reader, server_writer, is_client=True))
            group.create_task(self._pump(pair, server_reader, writer, is_client=False))

    async def _pump(
        self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if is_client:
                    pair.heard = (pair.heard + data)[-65536:]
                    pair.is_losing = pair.is_losing or any(word in data for word in self._losing)
                elif pair.is_losing:
                    pair.reply += data
                    if pair.reply.endswith(READY):
                        self._losing = ()
                        for end in pair.ends:
                            end.transport.abort()
                        return
                    continue
                if pair.is_frozen:
                    continue
                writer.write(data)
                await writer.drain()
                if is_client and self._lost is not None and self._lost(pair, data):
                    self._lost, pair.is_frozen = None, True
                    pair.ends[0].transport.abort()
        if not pair.is_frozen:
            writer.close()

    async def _close(self) -> None:
        self._server.close()
        await self._abort(lambda _: True)
        pumping = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pumping:
            task.cancel()
        await asyncio.gather(*pumping, return_exceptions=True)

    async def _abort(self, chosen: Callable[[Pair], bool], ends: int = 2) -> None:
        for pair in filter(chosen, self._pairs):
            for end in pair.ends[:ends]:
                end.transport.abort()
