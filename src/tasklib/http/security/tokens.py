"""Checking tokens: looked up by their hash, and cached for a second so that busy clients cost little."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Final, TypeVar

from tasklib.errors import DatabaseUnavailable
from tasklib.service.tokens import Token, Tokens

REMEMBER_SECONDS: Final = 1.0
"""A revoked token is refused after this time at the latest."""
REMEMBER_NONE_SECONDS: Final = 0.25
"""After the first token is created, an open service requires one after this time at the latest."""
REMEMBER_TOKENS: Final = 1000
PATIENCE_SECONDS: Final = 3.0

T = TypeVar("T")


class TokenCheck:
    """Checks whether tokens are valid."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._timing = tokens.timing
        self._good: OrderedDict[str, tuple[Token, float]] = OrderedDict()
        self._seen_any = False
        self._none_until = -math.inf
        self._asking = asyncio.Lock()
        self._next_answer: asyncio.Task[bool] | None = None

    async def find(self, secret: str, *, uncached: bool = False) -> Token | None:
        """The token, if it exists, has not expired and was not revoked; `uncached` reads the database."""
        if len(secret) > 200:
            return None
        hashed = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._good.get(hashed)
        if known is not None and known[1] > self._timing.monotonic() and not uncached:
            return known[0]
        token = await self._within(self._tokens.ause(secret))
        self._good.pop(hashed, None)
        if token is not None:
            self._good[hashed] = (token, self._timing.monotonic() + REMEMBER_SECONDS)
            while len(self._good) > REMEMBER_TOKENS:
                self._good.popitem(last=False)
        return token

    async def any_exists(self) -> bool:
        """Whether a token was ever created: from then on every request needs one, even after the last has expired.

        "No" is cached for a quarter of a second: a query for each new task costs half as much as storing it.
        Concurrent requests share one query, which is sent after all of them have arrived.
        """
        if self._seen_any or self._timing.monotonic() < self._none_until:
            return self._seen_any
        if self._next_answer is None:
            self._next_answer = asyncio.create_task(self._ask())
            # If nobody waits for it any more, asyncio would log its error.
            self._next_answer.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        return await self._within(asyncio.shield(self._next_answer))

    async def _ask(self) -> bool:
        async with self._asking:
            self._next_answer = None
            asked_at = self._timing.monotonic()
            self._seen_any = self._seen_any or await self._tokens.aany_exists()
            self._none_until = asked_at + REMEMBER_NONE_SECONDS
            return self._seen_any

    def forget(self) -> None:
        """Clear the cache: a token was created or revoked here."""
        self._good.clear()
        self._none_until = -math.inf

    async def _within(self, asked: Awaitable[T]) -> T:
        """The answer; without one soon the database counts as unavailable, so callers do not wait for its timeouts."""
        try:
            async with self._timing.timeout(PATIENCE_SECONDS):
                return await asked
        except TimeoutError:
            text = f"the database did not answer for {PATIENCE_SECONDS:g} s; check that it is running"
            raise DatabaseUnavailable(text) from None
