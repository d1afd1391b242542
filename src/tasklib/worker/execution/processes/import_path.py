"""Finding a task's function in a child process: the address a worker sends, and how the child imports it."""

from __future__ import annotations

import base64
import importlib
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import process, spawn
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from tasklib.core.calls.import_guard import become_child, loading
from tasklib.definition import Definition, FunctionDefinition
from tasklib.definition.parameters import underlying
from tasklib.errors import NotInitialized, TaskDefinitionError
from tasklib.submission.function import TaskFunction

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

MAIN = "__main__"
MAIN_AGAIN = "__mp_main__"
"""What multiprocessing calls the main script when it is loaded in another process, so `if __name__ == …` is false."""
QUEUE_HOLDERS = ("tasklib.fluent", TaskFunction.__module__)
"""The modules whose objects hold a queue: those of `tq` (named as text, because it imports the worker) and of task
functions."""


class Address(NamedTuple):
    """Where a function is defined."""

    module: str
    qualname: str
    declaration: str | None = None
    """How the task was declared, for a child that does not find it declared when it imports the module."""


def address_of(definition: Definition) -> Address:
    """Where a child process finds the function; TaskDefinitionError says why it cannot, and what to do."""
    address = _identity(definition)
    obstacle = _obstacle(address)
    if obstacle is not None:
        raise TaskDefinitionError(
            f"task {definition.name!r} cannot run in a child process, because {definition.place} {obstacle}; "
            "define it at the top level of a module that can be imported, or leave out isolation='process'"
        )
    return address._replace(declaration=_declaration(definition))


def is_importable(definition: Definition) -> bool:
    """Whether a child process should find the function."""
    return _obstacle(_identity(definition)) is None


def surroundings(queue: TaskQueue, modules: Iterable[str]) -> dict[str, Any]:
    """What a child process needs to find the same modules as this process."""
    variable = _variable_of(queue)
    homes = [*modules, *_homes(queue), *([] if variable is None else variable[:1])]
    return {
        "sys_path": [each or process.ORIGINAL_DIR for each in sys.path],  # type: ignore[attr-defined]
        "sys_argv": sys.argv,
        "main": main_source(),
        "queue": variable,
        "modules": [each for each in dict.fromkeys(homes) if each != MAIN or main_source()],
    }


def main_source() -> dict[str, str]:
    """How to load the main script again, as multiprocessing expects it; empty if that is impossible."""
    main = sys.modules.get(MAIN)
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        # The __main__.py of a package runs what it does unconditionally.
        return {} if name == MAIN or name.endswith(f".{MAIN}") else {"init_main_from_name": name}
    path = os.path.normpath(os.path.join(process.ORIGINAL_DIR, getattr(main, "__file__", None) or ""))  # type: ignore[attr-defined]
    # What was typed in has no file, and the one that starts IPython is not the program.
    if not os.path.isfile(path) or os.path.splitext(os.path.basename(path))[0] == "ipython":
        return {}
    return {"init_main_from_path": path}


class Loader:
    """The child's side: imports modules, and finds definitions and the queue they belong to."""

    def __init__(self, main: Mapping[str, str], modules: Sequence[str], queue: Sequence[str] | None) -> None:
        self._main = main
        self._modules = modules
        self._queue = queue
        self._main_loaded = False
        become_child()

    def load(self, name: str, address: Address) -> tuple[Definition, TaskQueue | None]:
        """The definition of a task, and its queue if that can be found; TaskDefinitionError if the task cannot."""
        with loading():
            # Before the task's own module, which may need what they set up.
            for each in self._modules:
                self._import(each)
            module = self._import(address.module)
            found = self._find(name, address, module)
            if found is None and self._main and not self._main_loaded:
                self._import(MAIN)
                found = self._find(name, address, module)
        if found is None:
            raise TaskDefinitionError(
                f"a child process has imported {address.module}, but no task {name!r} with the function "
                f"{address.qualname} came with it; define or register it when that module is imported, in a queue that "
                "is a variable of a module"
            )
        return found

    def _find(self, name: str, address: Address, module: ModuleType) -> tuple[Definition, TaskQueue | None] | None:
        """The definition from the task's queue, from its decorated function, or from the declaration that the worker
        sent."""
        queue = self._worker_queue()
        definition = None if queue is None else queue.registry.get(name)
        if definition is not None and _identity(definition)[:2] == address[:2]:
            return definition, queue
        function = _at(module, address.qualname)
        decorated = getattr(function, "definition", None)
        if isinstance(decorated, Definition):
            if name in (decorated.name, *decorated.options.aliases):
                return decorated, _queue_in(function) or queue
            function = decorated.function
        definition = _declared(name, address, function)
        return None if definition is None else (definition, queue)

    def _worker_queue(self) -> TaskQueue | None:
        """The worker's queue, found in the module variable that holds it."""
        from tasklib.queue import default

        if self._queue is not None:
            module, variable = self._queue
            return _queue_in(getattr(self._import(module), variable, None))
        try:
            return default.default_queue()
        except NotInitialized:
            return None

    def _import(self, name: str) -> ModuleType:
        if name != MAIN:
            return importlib.import_module(name)
        if not self._main_loaded:
            self._main_loaded = True
            spawn.prepare(self._main)
        return sys.modules[MAIN]


def _identity(definition: Definition) -> Address:
    function = underlying(definition.function)
    module = str(getattr(function, "__module__", ""))
    return Address(MAIN if module == MAIN_AGAIN else module, str(getattr(function, "__qualname__", function)))


def _obstacle(address: Address) -> str | None:
    """Why a child process cannot import the function; None if it can."""
    if "<lambda>" in address.qualname:
        return "is a lambda"
    if "<locals>" in address.qualname:
        return "is defined inside another function"
    if address.module == MAIN:
        return None if main_source() else "was not read from a script or module that can be loaded again"
    return None if address.module in sys.modules else f"belongs to {address.module}, which is no module"


def _homes(queue: TaskQueue) -> Iterator[str]:
    """The modules that register the queue's hooks."""
    for hook in (*queue.startup_hooks, *queue.shutdown_hooks):
        module = getattr(underlying(hook), "__module__", None)
        if module in sys.modules:
            yield module


def _variable_of(queue: TaskQueue) -> list[str] | None:
    """A module and the name of its variable that holds the queue, or another queue with the same tasks."""
    from tasklib.queue import TaskQueue

    found = [
        [name, variable]
        for name, module in list(sys.modules.items())
        for variable, value in list(getattr(module, "__dict__", {}).items())
        if (issubclass(type(value), TaskQueue) or type(value).__module__ in QUEUE_HOLDERS)
        and getattr(_queue_in(value), "registry", None) is queue.registry
    ]
    # The main script is loaded again only where there is no other way: it may do more than define things.
    return min(found, key=lambda each: each[0] in (MAIN, MAIN_AGAIN), default=None)


def _queue_in(value: Any) -> TaskQueue | None:
    """The queue that a variable holds: itself, or through tq or a decorated function."""
    from tasklib.queue import TaskQueue

    try:
        found = value.queue if type(value).__module__ in QUEUE_HOLDERS else value
    except NotInitialized:
        return None
    return found if isinstance(found, TaskQueue) else None


def _declaration(definition: Definition) -> str | None:
    """How the task was declared, as text; None where that cannot be sent, as with a lambda for a retry policy.

    Pickled, because it names classes and functions; the worker's own child reads it, and nobody else can write there.
    """
    payload = getattr(definition, "declared_payload", None)
    try:
        declared = pickle.dumps((isinstance(definition, FunctionDefinition), definition.options, payload))
    except Exception:  # noqa: BLE001  pickling fails with many kinds of errors
        return None
    return base64.b64encode(declared).decode()


def _declared(name: str, address: Address, function: Any) -> Definition | None:
    """The task as the worker's program declared it at run time, with the function that was imported here."""
    if address.declaration is None or not callable(function):
        return None
    try:
        is_function, options, payload = pickle.loads(base64.b64decode(address.declaration))
    except Exception:  # noqa: BLE001  a class or function that it names is not here, or not yet
        return None
    if is_function:
        return Definition.for_function(function, name=name, options=options)
    return Definition.for_handler(name, function, options, payload)


def _at(module: ModuleType, qualname: str) -> Any:
    target: Any = module
    for part in qualname.split("."):
        target = getattr(target, part, None)
    return target
