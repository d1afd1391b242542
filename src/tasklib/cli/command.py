"""What every command shares: how it is declared, the database it uses, and where its answer goes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints
from urllib.parse import unquote

import typer

from tasklib.cli.exit_codes import Exit, code_for
from tasklib.cli.help import EVERYWHERE, HelpfulCommand
from tasklib.cli.options.declare import option
from tasklib.cli.show.output import Output

if TYPE_CHECKING:
    from datetime import datetime

    from tasklib.core.config import Config
    from tasklib.service.service import QueueService

DEFAULT_URL: Final = "sqlite:///tasklib.db"
URL_VARIABLES: Final = ("TASKLIB_DATABASE_URL", "DATABASE_URL")

DatabaseUrl = Annotated[
    str | None,
    option(
        "URL",
        "Where the tasks are: sqlite:///file.db or postgresql://…  "
        f"[env: {', '.join(URL_VARIABLES)}; default: {DEFAULT_URL}]",
        *("--database-url", "--dsn"),
        panel=EVERYWHERE,
    ),
]
Json = Annotated[bool, option(None, "Print one JSON document instead of text.", "--json", panel=EVERYWHERE)]

Handler = TypeVar("Handler", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options given before the command's name; the same ones after it override them."""

    database_url: str | None = None
    as_json: bool = False


class Cli:
    """What a command works with."""

    def __init__(self, database_url: str | None, *, as_json: bool = False, creates: bool = False) -> None:
        self.given_url = database_url
        """The URL given as an option; None if it came from the environment or is the default."""
        self.out = Output(as_json=as_json)
        self.creates = creates
        """Whether the database may be created if it is missing."""

    @property
    def url(self) -> str:
        """The database to use."""
        return self.given_url or next((os.environ[v] for v in URL_VARIABLES if os.environ.get(v)), DEFAULT_URL)

    @cached_property
    def config(self) -> Config:
        """The settings of the queue; a file that is not there is not created by a command that only looks."""
        from tasklib.core.config import Config

        config = Config(database_url=self.url)
        if self.creates or not (missing := missing_file(config)):
            return config
        self.out.note(f"there is no database {missing} yet; --database-url or DATABASE_URL names another")
        return Config(database_url="sqlite:///:memory:")

    @cached_property
    def service(self) -> QueueService:
        """The service behind every command."""
        from tasklib.queue import TaskQueue
        from tasklib.service.service import QueueService

        return QueueService(TaskQueue(self.config))

    @property
    def user(self) -> str:
        """The user of this machine who gives the command: `ada@host`."""
        from tasklib.queue.change_log import local_user

        return local_user()

    def now(self) -> datetime:
        """The time by the database's clock, which wrote the times that ages are computed from."""
        return self.service.administration.now()

    def close(self) -> None:
        """Close the database if it was opened."""
        if "service" in self.__dict__:
            self.service.queue.close()


class Commands(typer.Typer):
    """The commands of one group of the help page."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def add(self, *, name: str | None = None, creates: bool = False) -> Callable[[Handler], Handler]:
        """Add a command, named like its function; `creates` says that it may create the database if it is missing.

        The function takes a Cli, then the command's own options; --database-url and --json are added to them.  A
        parameter annotated with a dataclass stands for the options that are its fields, and gets one made of them.
        The docstring ends with `Examples:` and one example per line.
        """

        def decorate(handler: Handler) -> Handler:
            purpose, _, examples = (inspect.getdoc(handler) or "").partition("\n\nExamples:\n")
            self.command(
                name or handler.__name__.replace("_", "-"),
                cls=HelpfulCommand,
                help=purpose,
                epilog=inspect.cleandoc(examples),
                rich_help_panel=self._group,
            )(_runner(handler, creates=creates))
            return handler

        return decorate


def _runner(handler: Callable[..., None], *, creates: bool) -> Callable[..., None]:
    """The function that Typer calls: its parameters are all options, and it ends in the way of every command."""
    _, *own = inspect.signature(handler, eval_str=True).parameters.values()
    bundles: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}

    def run(ctx: typer.Context, database_url: str | None, json: bool, **options: Any) -> None:
        root = ctx.find_root().obj or GlobalOptions()
        cli = Cli(database_url or root.database_url, as_json=json or root.as_json, creates=creates)
        for bundle, kind in bundles.items():
            options[bundle] = kind(**{field.name: options.pop(field.name) for field in fields(kind)})
        with _ending(cli):
            handler(cli, **options)

    given = [option for each in own for option in _options_of(each)]
    added = [_parameter("database_url", DatabaseUrl, None), _parameter("json", Json, False)]
    parameters = [_parameter("ctx", typer.Context), *given, *added]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _options_of(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """The parameter itself, or one for each field of the dataclass it is annotated with."""
    if not is_dataclass(kind := parameter.annotation):
        yield _parameter(parameter.name, kind, parameter.default)
        return
    annotations = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield _parameter(field.name, annotations[field.name], default)


@contextmanager
def _ending(cli: Cli) -> Generator[None, None, None]:
    """Close what was opened, and end in one JSON document if that was asked for, also after an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader is gone; without this Python would report the same error again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.PIPE_CLOSED) from None
    except Exception as error:
        if cli.out.as_json and not cli.out.answered and not isinstance(error, typer.Exit):
            cli.out.failure(type(error).__name__, str(error), code_for(error))
        raise
    finally:
        cli.close()


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def missing_file(config: Config) -> Path | None:
    """The file of a SQLite URL if it does not exist."""
    file = file_of(config)
    return None if file is None or file.exists() else file


def file_of(config: Config) -> Path | None:
    """The file of a SQLite URL; None for a database in memory or on a server."""
    name = unquote(config.database_url.partition("?")[0].removeprefix("sqlite:///"))
    if not config.is_sqlite or name.startswith((":memory:", "sqlite:")):
        return None
    return Path(name).absolute()
