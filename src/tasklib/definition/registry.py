"""The tasks defined for one queue, by name and by former names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tasklib.definition.functions import REMEDY
from tasklib.definition.tasks import Definition
from tasklib.errors import TaskDefinitionError, TaskNotRegistered

log = logging.getLogger("tasklib.queue")


class Registry:
    """Definitions by name; may be read in any thread while another one adds."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._definitions: dict[str, Definition] = {}
        self._by_any_name: dict[str, Definition] = {}
        self._retries: dict[str, int] = {}

    def add(self, definition: Definition) -> Definition:
        """Register the task; a name taken by another function is a TaskDefinitionError that names both."""
        with self._changing:
            for name in (definition.name, *definition.options.aliases):
                other = self._by_any_name.get(name)
                if other is not None and not definition.replaces(other):
                    raise TaskDefinitionError(_taken(name, other, definition))
            self._replace({**self._definitions, definition.name: definition})
        if log.isEnabledFor(logging.DEBUG):
            log.debug("task %s registered: %s", definition.name, definition.place, extra={"task_name": definition.name})
        return definition

    def remove(self, name: str) -> Definition | None:
        """Remove the task of this name; its definition, or None if there was none."""
        with self._changing:
            rest = dict(self._definitions)
            removed = rest.pop(name, None)
            self._replace(rest)
        return removed

    def get(self, name: str) -> Definition | None:
        """The definition for a name or an alias, or None."""
        return self._by_any_name.get(name)

    def find(self, target: Any) -> Definition:
        """The definition of a name, a function or a decorated task; TaskNotRegistered if there is none."""
        if isinstance(target, str):
            found = self.get(target)
        elif isinstance(target, Definition):
            found = target
        elif isinstance(getattr(target, "definition", None), Definition):
            found = target.definition  # a decorated function carries its own
        else:
            found = next((each for each in reversed(self) if each.function == target), None)
        if found is None:
            name = getattr(target, "name", None) or getattr(target, "__name__", None) or target
            raise TaskNotRegistered(str(name), self.names())
        return found

    def names(self) -> list[str]:
        """Every name a worker with these definitions may claim: names and aliases."""
        return list(self._by_any_name)

    def retries(self) -> Mapping[str, int]:
        """For each name and alias, how many retries its declaration asks for, if it does."""
        return self._retries

    def items(self) -> list[tuple[str, Definition]]:
        """Name and definition of each task, without aliases."""
        return list(self._definitions.items())

    def items_by_any_name(self) -> list[tuple[str, Definition]]:
        """Every name and alias, with its definition."""
        return list(self._by_any_name.items())

    def __iter__(self) -> Iterator[Definition]:
        return iter(list(self._definitions.values()))

    def __reversed__(self) -> Iterator[Definition]:
        return reversed(list(self._definitions.values()))

    def __len__(self) -> int:
        return len(self._definitions)

    def __contains__(self, name: object) -> bool:
        return name in self._by_any_name

    def _replace(self, definitions: dict[str, Definition]) -> None:
        # New dictionaries, so that none changes while another thread reads it.
        by_any_name = {name: each for each in definitions.values() for name in (each.name, *each.options.aliases)}
        self._definitions, self._by_any_name = definitions, by_any_name
        self._retries = {
            name: each.options.max_retries for name, each in by_any_name.items() if each.options.max_retries is not None
        }


def _taken(name: str, other: Definition, definition: Definition) -> str:
    if other.hidden and definition.hidden and other.place == definition.place:
        first, second = other.hidden[0][1], definition.hidden[0][1]
        return (
            f"two tasks are named {name!r}: {definition.place} wraps both {first} and {second}; "
            f"{REMEDY}, or give each task a name="
        )
    return (
        f"two tasks are named {name!r}: {other.place} and {definition.place}; "
        "give one of them another name=, or take the alias away"
    )
