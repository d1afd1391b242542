"""The journal of a workflow in a child process: requests go over the pipe to the worker, which asks the database."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from tasklib.errors import ClaimLost, ConfigurationError, StorageError
from tasklib.storage.rows import ClaimedTask
from tasklib.worker.messages import Channel, Inbox
from tasklib.worker.workflows.effects import Request
from tasklib.worker.workflows.step_threads import start_in_thread


class PipeJournal:
    """Sends requests to the worker; usable from any thread of the child."""

    _numbers = itertools.count(1)

    def __init__(self, channel: Channel, inbox: Inbox) -> None:
        self._channel = channel
        self._inbox = inbox

    async def ask(self, task: ClaimedTask, request: Request) -> Any:
        """Await the answer; a thread waits for it, so that other coroutines can run."""
        return await start_in_thread(lambda: self.ask_blocking(task, request))

    def ask_blocking(self, task: ClaimedTask, request: Request) -> Any:
        """The answer, blocking this thread."""
        number = next(self._numbers)
        self._channel.send(["ask", number, task.id, request.name, dict(request.params)])
        match self._inbox.answer(number):
            case [True, answer]:
                return answer
            case [False, "ClaimLost", _]:
                raise ClaimLost(UUID(task.id), task.version)
            case [False, "ConfigurationError", text]:
                raise ConfigurationError(text)
            case [False, _, text]:
                raise StorageError(text)
            case _:
                raise StorageError("the worker of this child process is gone")
