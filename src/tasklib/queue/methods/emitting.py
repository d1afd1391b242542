"""Emitting the events that workflows wait for, and answering their questions."""

from __future__ import annotations

from typing import Any

from tasklib.core.calls.current import transaction_here
from tasklib.core.task_id import require_id
from tasklib.errors import ConfigurationError
from tasklib.queue.arguments import Id
from tasklib.queue.base import QueueBase
from tasklib.queue.sync_async import operation, require_asyncio
from tasklib.storage.operations.workflows import events
from tasklib.storage.statement import Operation


class EmitsEvents(QueueBase):
    """Events and answers."""

    def emit(
        self, name: str, payload: Any = None, *, to: Id | None = None, connection: Any = None, withdraw: bool = False
    ) -> bool:
        """Emit an event to every task that waits for it, now or later; False if a fact of this name was known already.

        Without `to` it is a fact: the first of its name counts and is kept.  With `to` it is a message to one task,
        which takes each once, in order.  On a `connection` it joins the caller's transaction.  `withdraw=True` forgets
        a fact.

        Examples:
            >>> @queue.task(context=True)
            ... def deliver(ctx: TaskContext, order: int) -> str:
            ...     return ctx.wait(f"shipped:{order}", str)
            >>> task_id = deliver.submit(42)
            >>> queue.process_batch()  # it waits now, and holds no slot
            1
            >>> queue.emit("shipped:42", "XY 7")
            True
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            'XY 7'
        """
        joined = transaction_here(connection, self.database)
        make = self._emission(name, payload, to, withdraw, delivers=joined is None)
        if joined is not None:
            return _has_changed(self.database.run_on(joined, make))
        emitted = self.database.run(make)
        if not withdraw and emitted is not None:
            self.database.run(lambda: events.deliver_event(emitted))
        return _has_changed(emitted)

    async def aemit(
        self, name: str, payload: Any = None, *, to: Id | None = None, connection: Any = None, withdraw: bool = False
    ) -> bool:
        """The awaiting form of `emit`."""
        require_asyncio()
        joined = transaction_here(connection, self.database)
        make = self._emission(name, payload, to, withdraw, delivers=joined is None)
        if joined is not None:
            return _has_changed(await self.database.arun_on(joined, make))
        emitted = await self.database.arun(make)
        if not withdraw and emitted is not None:
            await self.database.arun(lambda: events.deliver_event(emitted))
        return _has_changed(emitted)

    @operation
    def answer(self, task_id: Id, key: str, value: Any, *, by: str | None = None) -> Operation[None]:
        """Answer the question that a workflow asks under this key; the first answer counts.

        The key is that of the step (`approval`, `approval:7`), or only what the function gave as `key=` (`7`).

        Examples:
            >>> @queue.task(context=True)
            ... def careful(ctx: TaskContext, command: str) -> str:
            ...     return "done" if ctx.wait("approval", bool, ask=f"Run {command}?") else "denied"
            >>> task_id = careful.submit("rm -r build")
            >>> queue.process_batch()
            1
            >>> queue.answer(task_id, "approval", False, by="ada")
            >>> queue.process_batch()
            1
            >>> task_id.wait()
            'denied'
        """
        yield from events.answer_question(require_id(task_id), key, value, by)

    aanswer = answer.as_async

    def _emission(self, name: str, payload: Any, to: Id | None, withdraw: bool, *, delivers: bool) -> Any:
        events.check_event(name)
        if withdraw:
            if to is not None or payload is not None:
                raise ConfigurationError("withdraw=True forgets a fact: give its name alone")
            return lambda: events.withdraw(name)
        text = events.event_text(name, payload)
        target = None if to is None else require_id(to)
        return lambda: events.emit(name, text, target, None, delivers=delivers)


def _has_changed(emitted: int | bool | None) -> bool:
    """Whether something changed, from the number of a new event or the answer of a withdrawal."""
    return emitted is not None and emitted is not False
