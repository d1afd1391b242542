"""Tokens of the HTTP service: token create, list, revoke."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tasklib.cli.command import Cli, command
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.show.output import Column

if TYPE_CHECKING:
    from tasklib.service.tokens import Token

GROUP = "Service"

app = typer.Typer()


class What(StrEnum):
    """What to do with tokens."""

    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


class RoleName(StrEnum):
    """The roles, without loading what they mean."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@command(
    app,
    "token",
    group=GROUP,
    creates=True,
    examples="""
    tasklib token create ci --role producer --expires 90d
    tasklib token list
    tasklib token revoke ci
    """,
)
def token(
    cli: Cli,
    what: Annotated[What, typer.Argument(metavar="create|list|revoke", help="What to do.", show_default=False)],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the token's owner. To revoke: a name (all its tokens), a token, or its first characters.",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        RoleName,
        typer.Option(
            help="producer, worker, viewer, operator or admin.  [default: viewer]", metavar="ROLE", show_default=False
        ),
    ] = RoleName.VIEWER,
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="30d, or a date and time.  [default: never]", show_default=False)
    ] = None,
) -> None:
    """Create, list and revoke tokens for the HTTP service.

    A token is shown once; only its hash is kept.
    """
    if what is What.LIST:
        _list(cli)
    elif name is None:
        raise CommandFailed(f"whose? name it: tasklib token {what} NAME", Exit.USAGE)
    elif what is What.CREATE:
        _create(cli, name, role, expires)
    else:
        _revoke(cli, name)


def _create(cli: Cli, name: str, role: RoleName, expires: str | None) -> None:
    from tasklib.definition import check_name
    from tasklib.service.tokens import Role

    check_name(name, what="a token's name")
    until = None if expires is None else values.duration_or_moment(expires)
    made = cli.service.tokens.create(name, Role(role), expires_at=until)

    def say() -> None:
        cli.out.line(made.secret)
        until = made.token.expires_at.isoformat(timespec="minutes") if made.token.expires_at else "it is revoked"
        cli.out.note(f"{role} token {name!r}, valid until {until}; it is not shown again")

    cli.out.answer({"token": made.secret, "name": name, "role": role.value, "expires_at": made.token.expires_at}, say)


def _list(cli: Cli) -> None:
    found = cli.service.tokens.all()

    def say() -> None:
        if found:
            _show(cli, found)
        else:
            cli.out.line("No tokens: the service is open to this machine. Create one: tasklib token create NAME")

    cli.out.answer({"tokens": found}, say)


def _show(cli: Cli, found: Sequence[Token]) -> None:
    headings = ("NAME", "ROLE", "BEGINS", "CREATED", "EXPIRES", "LAST USED", "STATE")
    rows = [
        (
            each.name,
            each.role.value,
            f"{each.begins}…",
            _text(each.created_at),
            _text(each.expires_at, "never"),
            _text(each.last_used_at, "never"),
            "valid" if each.valid else "revoked" if each.revoked_at else "expired",
        )
        for each in found
    ]
    cli.out.table([Column(heading) for heading in headings], rows)


def _revoke(cli: Cli, name: str) -> None:
    from tasklib.service.tokens import short_form

    revoked = cli.service.tokens.revoke_named(name)
    if not revoked:
        raise CommandFailed(f"there is no token {short_form(name)} to revoke; see: tasklib token list")

    def say() -> None:
        for each in revoked:
            cli.out.line(f"Revoked {each.role} token {each.name}, {each.begins}…")

    cli.out.answer({"revoked": revoked}, say)


def _text(moment: datetime | None, otherwise: str = "") -> str:
    return otherwise if moment is None else moment.isoformat(sep=" ", timespec="minutes").replace("+00:00", "Z")
