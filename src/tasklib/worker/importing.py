"""Finding a task's function in another process: where a worker says it is, and how a child process gets there."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import process, spawn
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from tasklib.definition import Definition
from tasklib.definition.parameters import underlying
from tasklib.errors import ConfigurationError, NotInitialized, TaskDefinitionError

if TYPE_CHECKING:
    from tasklib.queue import TaskQueue

MAIN = "__main__"
MAIN_AGAIN = "__mp_main__"
"""What multiprocessing calls the main script when it is loaded in another process, so `if __name__ == …` is false."""


class Address(NamedTuple):
    """Where a function is defined."""

    module: str
    qualname: str


def address_of(definition: Definition) -> Address:
    """Where a child process finds the function; TaskDefinitionError says why it cannot, and what to do."""
    address = _identity(definition)
    obstacle = _obstacle(address)
    if obstacle is not None:
        raise TaskDefinitionError(
            f"task {definition.name!r} cannot run in a child process, because {definition.place} {obstacle}; "
            "define it at the top level of a module that can be imported, or leave out isolation='process'"
        )
    return address


def is_importable(definition: Definition) -> bool:
    """Whether a child process should find the function."""
    return _obstacle(_identity(definition)) is None


def surroundings(queue: TaskQueue, modules: Iterable[str]) -> dict[str, Any]:
    """What a child process must be told to find modules as this process does."""
    homes = [*modules, *_homes(queue)]
    return {
        "sys_path": [each or process.ORIGINAL_DIR for each in sys.path],  # type: ignore[attr-defined]
        "sys_argv": sys.argv,
        "main": main_source(),
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


def is_child() -> bool:
    """Whether this process is one that a worker has started for its tasks."""
    return _state.loader is not None


def refuse_while_loading() -> None:
    """Called where a worker starts: a script that starts one when it is imported would do so in every child."""
    if _state.loading:
        raise ConfigurationError(
            "a worker is started while a child process imports this program to find its tasks; put what the program "
            "does under `if __name__ == '__main__':`, or define the tasks in a module of their own"
        )


class Loader:
    """The child's side: imports modules, and finds definitions and the queue they belong to."""

    def __init__(self, main: Mapping[str, str], modules: Sequence[str]) -> None:
        self._main = main
        self._modules = modules
        self._main_loaded = False
        _state.loader = self

    def load(self, name: str, address: Address) -> tuple[Definition, TaskQueue | None]:
        """The definition of a task, and its queue if it can be found; TaskDefinitionError if the task cannot."""
        with _loading():
            module = self._import(address.module)
            for each in self._modules:
                self._import(each)
            found = _find(name, address, module)
            if found is None and self._main and not self._main_loaded:
                self._import(MAIN)
                found = _find(name, address, module)
        if found is None:
            raise TaskDefinitionError(
                f"a child process has imported {address.module}, but no task {name!r} with the function "
                f"{address.qualname} came with it; define or register it when that module is imported, in a queue that "
                "is a variable of a module"
            )
        return found

    def _import(self, name: str) -> ModuleType:
        if name != MAIN:
            return importlib.import_module(name)
        if not self._main_loaded:
            self._main_loaded = True
            spawn.prepare(self._main)
        return sys.modules[MAIN]


class _State:
    """Whether this process is a child, and whether it is importing the program just now."""

    loader: Loader | None = None
    loading = False


_state = _State()


@contextmanager
def _loading() -> Generator[None]:
    _state.loading = True
    try:
        yield
    finally:
        _state.loading = False


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
    holders = [name for name, module in list(sys.modules.items()) if any(each is queue for each in _variables(module))]
    # The main script is loaded again only where there is no other way: it may do more than define things.
    yield from sorted(holders, key=lambda name: name == MAIN)[:1]


def _find(name: str, address: Address, module: ModuleType) -> tuple[Definition, TaskQueue | None] | None:
    for queue in _queues(module):
        definition = queue.registry.get(name)
        if definition is not None and _identity(definition) == address:
            return definition, queue
    return _walk(name, address, module)


def _queues(first: ModuleType) -> Iterator[TaskQueue]:
    """The queues of this process: those in variables of the module, then those of all others, then the default one."""
    from tasklib import default
    from tasklib.fluent import Fluent
    from tasklib.queue import TaskQueue

    for module in (first, *list(sys.modules.values())):
        for value in _variables(module):
            try:
                if isinstance(value, TaskQueue):
                    yield value
                elif isinstance(value, Fluent):
                    yield value.queue
            except Exception:  # noqa: BLE001  a stranger's object that cannot be asked, or tq before its init
                continue
    try:
        yield default.default_queue()
    except NotInitialized:
        return


def _walk(name: str, address: Address, module: ModuleType) -> tuple[Definition, TaskQueue | None] | None:
    """The decorated function itself, for a queue that is in no variable."""
    target: Any = module
    for part in address.qualname.split("."):
        target = getattr(target, part, None)
    definition = getattr(target, "definition", None)
    if not isinstance(definition, Definition) or name not in (definition.name, *definition.options.aliases):
        return None
    try:
        return definition, target.queue
    except (NotInitialized, AttributeError):
        return definition, None


def _variables(module: ModuleType) -> list[Any]:
    return list(getattr(module, "__dict__", {}).values())
