"""The children that a workflow has waited for, as its function sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, Protocol, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Results(Protocol[R_co]):
    """What children returned: works in `for` and in `async for`, as often as you like."""

    def __iter__(self) -> Iterator[R_co]:
        """One result after the other; the next page is read when the last one is used up."""
        ...

    def __aiter__(self) -> AsyncIterator[R_co]:
        """The same, awaited."""
        ...


class Group(Generic[R_co]):
    """Children that have ended: how many there were, how many failed, and the results of the others.

    `ctx.map` gives it:

    >>> @queue.task
    ... def square(x: int) -> int:
    ...     return x * x
    >>> @queue.task(context=True)
    ... def total(ctx: TaskContext, numbers: list[int]) -> int:
    ...     done = ctx.map(square, ({"x": number} for number in numbers))
    ...     return sum(done.results()) if done.failed == 0 else -1
    >>> task_id = total.submit([1, 2, 3])
    >>> while queue.process_batch():
    ...     pass
    >>> task_id.wait()
    14

    Examples:
        >>> @queue.task(context=True)
        ... def total(ctx: TaskContext, numbers: list[int]) -> int:
        ...     done = ctx.map(add, ({"a": number} for number in numbers))
        ...     return sum(done.results()) if done.failed == 0 else -1
        >>> task_id = total.submit([1, 2, 3])
        >>> while queue.process_batch():
        ...     pass
        >>> task_id.wait()
        9
    """

    def __init__(
        self, group_id: str, *, total: int, failed: int, cancelled: int, results: Callable[[Group[R_co]], Results[R_co]]
    ) -> None:
        self.id = group_id
        self.total = total
        self.failed = failed
        """Those that failed for good or were buried."""
        self.cancelled = cancelled
        self._results = results

    def results(self) -> Results[R_co]:
        """What the children returned, in the order of their inputs, without those that failed; read page by page.

        Works in `for` and in `async for`.

        Examples:
            >>> @queue.task(context=True)
            ... async def total(ctx: AsyncTaskContext) -> int:
            ...     done = await ctx.map(add, [{"a": 1}, {"a": 2}])
            ...     return sum([value async for value in done.results()])
            >>> task_id = total.submit()
            >>> while queue.process_batch():
            ...     pass
            >>> task_id.wait()
            5
        """
        return self._results(self)

    def __len__(self) -> int:
        return self.total

    def __repr__(self) -> str:
        return f"<Group of {self.total:,} children, {self.failed:,} failed, {self.cancelled:,} cancelled>"
