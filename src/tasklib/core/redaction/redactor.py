"""Hiding secrets in values and in everything that is shown of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from tasklib.core.codec import MASK
from tasklib.core.redaction.keys import DEFAULT_KEYS, secret_keys
from tasklib.core.redaction.paths import SECRETS_HEADER, Path, below, marked_paths, split_paths
from tasklib.core.redaction.texts import Texts


class TaskLike(Protocol):
    """The attributes of a task that are needed to find its secrets.

    `Task` and `Plan` use this module to hide theirs when they are printed, so it cannot import them.
    """

    @property
    def name(self) -> str: ...
    @property
    def kwargs(self) -> Any: ...
    @property
    def headers(self) -> Mapping[str, Any]: ...


class PlanLike(Protocol):
    """The attributes of a schedule's plan that are needed to find its secrets."""

    @property
    def task(self) -> str: ...
    @property
    def kwargs(self) -> Any: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def secrets(self) -> Sequence[str] | None: ...


TaskT = TypeVar("TaskT", bound=TaskLike)
PlanT = TypeVar("PlanT", bound=PlanLike)
Shown = TypeVar("Shown")


class MaskLeft(ValueError):
    """The mask was left where no secret is stored."""

    def __init__(self) -> None:
        super().__init__(f"{MASK} stands for the secret stored in that place, and none is; give the value itself")


class Redactor:
    """Hides secrets; `keys` are patterns of key names, separated by commas.

    `places` gives, by the name of a task, the paths of its secret arguments, beside those that its row names.
    """

    __slots__ = ("_keys", "_places")

    def __init__(self, keys: str = DEFAULT_KEYS, places: Callable[[str], Iterable[str]] = lambda _: ()) -> None:
        self._keys = secret_keys(keys)
        self._places = places

    def value(self, value: Any, secrets: Iterable[str] = ()) -> Any:
        """The value with every secret in it masked."""
        return self._hidden(value, split_paths(secrets))

    def payload(self, payload: Any, secrets: Iterable[str] = ()) -> Any:
        """Arguments as they may be shown: a secret is masked also where another argument repeats it."""
        paths = list(secrets)
        return Texts(self.found(payload, paths), self._keys).everywhere(self.value(payload, paths))

    def task(self, task: TaskT) -> TaskT:
        """The task as it may be shown."""
        secrets = self.secrets(task)
        hide = self.texts_of(task)
        whole: Any = task
        shown: TaskT = replace(
            whole,
            args=hide.everywhere(self.value(whole.args)),
            kwargs=hide.everywhere(self.value(whole.kwargs, secrets)),
            result=None if whole.result is None else hide.everywhere(self.value(whole.result)),
            tags=hide.everywhere(self.value(whole.tags)),
            headers={k: v for k, v in hide.everywhere(self.value(whole.headers)).items() if k != SECRETS_HEADER},
            error=hide.text(whole.error),
            progress_message=hide.text(whole.progress_message),
            unique_key=hide.text(whole.unique_key),
            concurrency_key=hide.text(whole.concurrency_key),
            waits_for=hide.text(whole.waits_for),
            history=tuple(
                replace(each, error=hide.text(each.error), traceback=hide.text(each.traceback))
                for each in whole.history
            ),
            log=tuple(replace(each, text=hide.text(each.text) or "") for each in whole.log),
        )
        return shown

    def schedule(self, schedule: Shown, secrets: Iterable[str] = ()) -> Shown:
        """The schedule as it may be shown; `secrets` are paths beside those that it was created with."""
        whole: Any = schedule
        shown: Shown = replace(whole, plan=self.plan(whole.plan, secrets))
        return shown

    def plan(self, plan: PlanT, secrets: Iterable[str] = ()) -> PlanT:
        """The plan of a schedule, as it may be shown."""
        paths = (*(plan.secrets or ()), *self._places(plan.task), *secrets)
        hide = Texts(self.found(plan.kwargs, paths), self._keys)
        kwargs, options = (hide.everywhere(each) for each in (self.value(plan.kwargs, paths), self.value(plan.options)))
        whole: Any = plan
        shown: PlanT = replace(whole, kwargs=kwargs, options=options, secrets=None)
        return shown

    def explanation(self, found: Shown) -> Shown:
        """Why a task is not running, with no secret in the reasons; the task as it is."""
        whole: Any = found
        hide = self.texts_of(whole.task)
        reasons = tuple(
            replace(
                each,
                text=hide.text(each.text) or "",
                evidence=hide.everywhere(dict(each.evidence)),
                remedy=hide.text(each.remedy),
            )
            for each in whole.reasons
        )
        shown: Shown = replace(whole, reasons=reasons)
        return shown

    def secrets(self, task: TaskLike) -> list[str]:
        """Where the task's arguments hold secrets: by its row and by its name."""
        return list(dict.fromkeys((*marked_paths(task.headers), *self._places(task.name))))

    def texts_of(self, task: TaskLike) -> Texts:
        """Removes the task's secrets from texts about it."""
        return self.texts(task.kwargs, task.headers, self._places(task.name))

    def texts(self, kwargs: Any, headers: Mapping[str, Any], secrets: Iterable[str] = ()) -> Texts:
        """Removes the secrets of a task from texts about it; `secrets` are paths beside those its row names."""
        return Texts(self.found(kwargs, (*marked_paths(headers), *secrets)), self._keys)

    def text(self, text: str, kwargs: Any, headers: Mapping[str, Any]) -> str:
        """A text about a task, without the task's secrets."""
        return self.texts(kwargs, headers).text(text) or ""

    def found(self, value: Any, secrets: Iterable[str] = ()) -> list[str]:
        """Every secret text in the value."""
        return list(self._find(value, split_paths(secrets)))

    def restore(self, edited: Any, stored: Any, secrets: Iterable[str] = ()) -> Any:
        """The edited value, with the stored one wherever what was shown of it is unchanged.

        A mask anywhere else stands for nothing: MaskLeft.
        """
        return _restored(edited, self.payload(stored, secrets), stored)

    def _hidden(self, value: Any, paths: Sequence[Path]) -> Any:
        if () in paths:
            return None if value is None else MASK
        if isinstance(value, Mapping):
            return {
                key: (None if entry is None else MASK)
                if key in self._keys
                else self._hidden(entry, below(paths, str(key)))
                for key, entry in _items(value)
            }
        if isinstance(value, list | tuple):
            return [self._hidden(entry, below(paths, str(number))) for number, entry in enumerate(_entries(value))]
        return MASK if _is_closed(value, paths) else value

    def _find(self, value: Any, paths: Sequence[Path]) -> Iterator[str]:
        if () in paths:
            yield from secret_texts(value)
        elif isinstance(value, Mapping):
            for key, entry in _items(value):
                yield from self._find(entry, [()] if key in self._keys else below(paths, str(key)))
        elif isinstance(value, list | tuple):
            for number, entry in enumerate(_entries(value)):
                yield from self._find(entry, below(paths, str(number)))
        elif _is_closed(value, paths):
            yield value


def _is_closed(value: Any, paths: Sequence[Path]) -> bool:
    """Whether it is a text where fields with secrets are expected: it may hold them, as JSON does."""
    return bool(paths) and isinstance(value, str)


def secret_texts(value: Any) -> Iterator[str]:
    """Every text and number in a value that is secret as a whole."""
    if isinstance(value, Mapping):
        for _, entry in _items(value):
            yield from secret_texts(entry)
    elif isinstance(value, list | tuple):
        for entry in _entries(value):
            yield from secret_texts(entry)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _without_mask(value: Any) -> Any:
    for text in secret_texts(value):
        if MASK in text:
            raise MaskLeft
    return value


def _restored(edited: Any, shown: Any, stored: Any) -> Any:
    if edited == shown:
        return stored
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        old: Mapping[Any, Any] = dict(_items(stored))
        before: Mapping[Any, Any] = dict(_items(shown))
        return {
            key: _restored(entry, before[key], old[key]) if key in before and key in old else _without_mask(entry)
            for key, entry in _items(edited)
        }
    if isinstance(edited, list) and isinstance(shown, list):
        pairs = list(zip(_entries(shown), _entries(stored), strict=False))
        entries = _entries(edited)
        kept = [_restored(new, *pair) for new, pair in zip(entries, pairs, strict=False)]
        return [*kept, *map(_without_mask, entries[len(kept) :])]
    return _without_mask(edited)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return cast("Mapping[Any, Any]", value).items()


def _entries(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value)
