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

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

MAIN = "__main__"
MAIN_AGAIN = "__mp_main__"
"""What multiprocessing calls the main script when it is loaded in another process, so `if __name__ == …` is false."""
FLUENT = "tasklib.fluent"
"""Where the class of `tq` is; known by name, because that module imports the workers."""


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
    """What a child process must know to find modules as this process does."""
    homes = [*modules, *_homes(queue)]
    return {
        "sys_path": [each or process.ORIGINAL_DIR for each in sys.path],  # type: ignore[attr-defined]
        "sys_argv": sys.argv,
        "main": main_source(),
        "queue": _variable_of(queue),
        "modules": [each for each in dict.fromkeys(homes) if each != MAIN or main_source()],
    }


def main_source() -> dict[str, str]:
    """How the main script is loaded again, in multiprocessing's words; empty if it cannot be."""
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
        """The definition of a task, and its queue if it can be found; TaskDefinitionError if the task cannot."""
        with loading():
            module = self._import(address.module)
            for each in self._modules:
                self._import(each)
            found = _find(name, address, module) or self._declare(name, address, module)
            if found is None and self._main and not self._main_loaded:
                self._import(MAIN)
                found = _find(name, address, module) or self._declare(name, address, module)
        if found is None:
            raise TaskDefinitionError(
                f"a child process has imported {address.module}, but no task {name!r} with the function "
                f"{address.qualname} came with it; define or register it when that module is imported, in a queue that "
                "is a variable of a module"
            )
        return found

    def _declare(self, name: str, address: Address, module: ModuleType) -> tuple[Definition, TaskQueue | None] | None:
        """The task as the worker's program has declared it at run time; the function is what was imported."""
        function = _at(module, address.qualname)
        if address.declaration is None or not callable(function):
            return None
        try:
            is_function, options, payload = pickle.loads(base64.b64decode(address.declaration))
        except Exception:  # noqa: BLE001  a class or function that it names is not here, or not yet
            return None
        plain = getattr(function, "definition", None)
        function = plain.function if isinstance(plain, Definition) else function
        if is_function:
            return Definition.for_function(function, name=name, options=options), self._worker_queue()
        return Definition.for_handler(name, function, options, payload), self._worker_queue()

    def _worker_queue(self) -> TaskQueue | None:
        """The queue that the worker works on, found where its program keeps it."""
        from tasklib.queue import TaskQueue, default

        if self._queue is not None:
            module, variable = self._queue
            found = getattr(self._import(module), variable, None)
            return found if isinstance(found, TaskQueue) else None
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
    """Why a child process cannot import what is there, if it cannot."""
    if "<lambda>" in address.qualname:
        return "is a lambda"
    if "<locals>" in address.qualname:
        return "is defined inside another function"
    if address.module == MAIN:
        return None if main_source() else "was not read from a script or module that can be loaded again"
    return None if address.module in sys.modules else f"belongs to {address.module}, which is no module"


def _homes(queue: TaskQueue) -> Iterator[str]:
    """The modules that give the queue its hooks, and one that holds it in a variable."""
    for hook in (*queue.startup_hooks, *queue.shutdown_hooks):
        module = getattr(underlying(hook), "__module__", None)
        if module in sys.modules:
            yield module
    variable = _variable_of(queue)
    if variable is not None:
        yield variable[0]


def _variable_of(queue: TaskQueue) -> list[str] | None:
    """A module and its variable that holds the queue."""
    found = [
        [name, variable]
        for name, module in list(sys.modules.items())
        for variable, value in list(getattr(module, "__dict__", {}).items())
        if value is queue
    ]
    # The main script is loaded again only where there is no other way: it may do more than define things.
    return min(found, key=lambda each: each[0] in (MAIN, MAIN_AGAIN), default=None)


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


def _find(name: str, address: Address, module: ModuleType) -> tuple[Definition, TaskQueue | None] | None:
    for queue in _queues(module):
        definition = queue.registry.get(name)
        if definition is not None and _identity(definition)[:2] == address[:2]:
            return definition, queue
    return _walk(name, address, module)


def _queues(first: ModuleType) -> Iterator[TaskQueue]:
    """The queues of this process: those in variables of the module, then those of all others, then the default one."""
    from tasklib.queue import TaskQueue, default

    for module in (first, *list(sys.modules.values())):
        for value in _variables(module):
            try:
                if isinstance(value, TaskQueue):
                    yield value
                elif type(value).__module__ == FLUENT:
                    yield value.queue
            except Exception:  # noqa: BLE001  a stranger's object that cannot be asked, or tq before its init
                continue
    try:
        yield default.default_queue()
    except NotInitialized:
        return


def _walk(name: str, address: Address, module: ModuleType) -> tuple[Definition, TaskQueue | None] | None:
    """The decorated function itself, for a queue that is in no variable."""
    target = _at(module, address.qualname)
    definition = getattr(target, "definition", None)
    if not isinstance(definition, Definition) or name not in (definition.name, *definition.options.aliases):
        return None
    try:
        return definition, target.queue
    except (NotInitialized, AttributeError):
        return definition, None


def _at(module: ModuleType, qualname: str) -> Any:
    target: Any = module
    for part in qualname.split("."):
        target = getattr(target, part, None)
    return target


def _variables(module: ModuleType) -> list[Any]:
    return list(getattr(module, "__dict__", {}).values())
