"""What must not be shown: values that the code calls secret, and those under keys that sound like it.  Pure.

One Redactor stands before every outlet: HTTP, the command line, logs and traces.  A secret is also taken out of texts,
because exceptions and log lines often quote what they were given.  The table keeps secrets open: they must arrive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache
from typing import Any, Final, cast

from tasklib.codec import MASK
from tasklib.task import Task, TaskFilter

SECRETS_HEADER: Final = "tasklib.secrets"
"""Where a row says which of its arguments the code calls secret, as dotted paths; `*` is every key or position."""
DEFAULT_KEYS: Final = (
    "*password*,*passwd*,*passphrase*,*secret*,*token,*api_key*,*apikey*,authorization,*credential*,*private_key*"
)
SHORTEST: Final = 4
"""A secret of fewer characters is hidden where it stands, but not looked for in texts: it would be found everywhere."""

Path = tuple[str, ...]


class Redactor:
    """Hides secrets; `keys` are patterns of key names, separated by commas."""

    __slots__ = ("_is_secret",)

    def __init__(self, keys: str = DEFAULT_KEYS) -> None:
        self._is_secret = _matcher(keys)

    def value(self, value: Any, secrets: Iterable[str] = ()) -> Any:
        """The value with every secret in it masked."""
        return self._hidden(value, _paths(secrets))

    def task(self, task: Task) -> Task:
        """The task as it may be shown."""
        secrets = _marked(task.headers)
        hide = self.texts(task.kwargs, task.headers)
        return replace(
            task,
            args=self.value(task.args),
            kwargs=self.value(task.kwargs, secrets),
            result=None if task.result is None else hide.everywhere(self.value(task.result)),
            tags=hide.everywhere(self.value(task.tags)),
            headers={k: v for k, v in hide.everywhere(self.value(task.headers)).items() if k != SECRETS_HEADER},
            error=hide.text(task.error),
            progress_message=hide.text(task.progress_message),
            unique_key=hide.text(task.unique_key),
            concurrency_key=hide.text(task.concurrency_key),
            history=tuple(replace(each, error=hide.text(each.error)) for each in task.history),
            log=tuple(replace(each, text=hide.text(each.text) or "") for each in task.log),
        )

    def shows(self, task: Task, which: TaskFilter) -> bool:
        """Whether a task that matches does so by what is shown of it: nobody finds out a secret by looking for it."""
        shown = self.task(task)
        if which.unique_key not in (None, shown.unique_key):
            return False
        if which.concurrency_key not in (None, shown.concurrency_key):
            return False
        if shown.tags != task.tags and any(shown.tags.get(key) != value for key, value in (which.tags or {}).items()):
            return False
        if which.search is None or (shown.kwargs, shown.tags, shown.error) == (task.kwargs, task.tags, task.error):
            return True
        wanted = which.search.lower()
        texts = (*_spellings(shown.kwargs), *_spellings(shown.tags), shown.error or "")
        return any(wanted in text.lower() for text in texts)

    def texts(self, kwargs: Any, headers: Mapping[str, Any]) -> Texts:
        """What takes the secrets of a task out of texts about it."""
        return Texts(self.found(kwargs, _marked(headers)), self._is_secret)

    def text(self, text: str, kwargs: Any, headers: Mapping[str, Any]) -> str:
        """A text about a task, without the task's secrets."""
        return self.texts(kwargs, headers).text(text) or ""

    def found(self, value: Any, secrets: Iterable[str] = ()) -> list[str]:
        """Every secret text in the value."""
        return list(self._find(value, _paths(secrets)))

    def restore(self, edited: Any, stored: Any) -> Any:
        """What a person has edited, with the stored secret wherever the mask was left in its place."""
        if edited == MASK:
            return stored
        if isinstance(edited, Mapping) and isinstance(stored, Mapping):
            return {k: self.restore(v, stored[k]) if k in stored else v for k, v in _items(edited)}
        if isinstance(edited, list) and isinstance(stored, list):
            return _entries(self.restore, edited, stored)
        return edited  # pyright: ignore[reportUnknownVariableType]

    def _hidden(self, value: Any, paths: Sequence[Path]) -> Any:
        if () in paths:
            return None if value is None else MASK
        if isinstance(value, Mapping):
            return {
                key: (None if entry is None else MASK)
                if self._is_secret(key)
                else self._hidden(entry, _below(paths, str(key)))
                for key, entry in _items(value)
            }
        if isinstance(value, list | tuple):
            inside = _below(paths, "*")
            return [self._hidden(entry, inside) for entry in cast("Sequence[Any]", value)]
        return value

    def _find(self, value: Any, paths: Sequence[Path]) -> Iterator[str]:
        if () in paths:
            yield from _leaves(value)
        elif isinstance(value, Mapping):
            for key, entry in _items(value):
                yield from self._find(entry, [()] if self._is_secret(key) else _below(paths, str(key)))
        elif isinstance(value, list | tuple):
            for entry in cast("Sequence[Any]", value):
                yield from self._find(entry, _below(paths, "*"))


class Texts:
    """Takes secrets out of texts, also where Python or JSON has quoted them, and values beside their keys."""

    __slots__ = ("_is_secret", "_pattern")

    def __init__(self, secrets: Iterable[str], is_secret: Callable[[str], bool] = lambda key: False) -> None:
        self._is_secret = is_secret
        forms = {form for each in secrets if len(each) >= SHORTEST for form in _forms(each)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str | None) -> str | None:
        """The text without them."""
        if text is None:
            return None
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _BESIDE_A_KEY.sub(self._beside, text) if "=" in text or ":" in text else text

    def _beside(self, found: re.Match[str]) -> str:
        return f"{found['key']}{found['between']}{MASK}" if self._is_secret(found["key"].strip("'\"")) else found[0]

    def everywhere(self, value: Any) -> Any:
        """The value with every text in it so."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.everywhere(entry) for key, entry in _items(value)}
        if isinstance(value, list | tuple):
            return [self.everywhere(entry) for entry in cast("Sequence[Any]", value)]
        return value


_BESIDE_A_KEY: Final = re.compile(
    r"""(?P<key>\b\w[\w.-]*|"[\w.-]+"|'[\w.-]+')(?P<between>(?:(?<=["'])\s*:|=)\s*)"""
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&)}\]"']+)"""
)
"""`password=hunter2`, `"apiKey": "…"`, `'token': '…'`: as programs write them; prose like `token: expired` is left."""


@lru_cache(16)
def _matcher(keys: str) -> Any:
    patterns = [translate(_normal(each)) for each in keys.split(",") if each.strip()]
    pattern = re.compile("|".join(patterns)) if patterns else None
    return lru_cache(4096)(lambda key: pattern is not None and pattern.match(_normal(str(key))) is not None)


def _normal(key: str) -> str:
    """`apiKey`, `API-Key` and `api_key` are one name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.strip()).replace("-", "_").lower()


def _marked(headers: Mapping[str, Any]) -> list[str]:
    marked = headers.get(SECRETS_HEADER)
    return [str(each) for each in _listed(marked)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []  # pyright: ignore[reportUnknownArgumentType]


def _entries(restore: Callable[[Any, Any], Any], edited: Any, stored: Any) -> list[Any]:
    """Each entry of a list with the one that was stored in its place; those added as they are."""
    old = [*_listed(stored), *_listed(edited)[len(_listed(stored)) :]]
    return [restore(new, before) for new, before in zip(_listed(edited), old, strict=False)]


def _paths(secrets: Iterable[str]) -> list[Path]:
    return [tuple(each.split(".")) if each else () for each in secrets]


def _below(paths: Sequence[Path], key: str) -> list[Path]:
    return [path[1:] for path in paths if path and path[0] in (key, "*")]


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return cast("Mapping[Any, Any]", value).items()


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for _, entry in _items(value):
            yield from _leaves(entry)
    elif isinstance(value, list | tuple):
        for entry in cast("Sequence[Any]", value):
            yield from _leaves(entry)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _spellings(value: Any) -> Iterator[str]:
    """The value as either database spells JSON."""
    yield json.dumps(value, ensure_ascii=False)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield from (line for line in secret.splitlines() if len(line) >= SHORTEST)
