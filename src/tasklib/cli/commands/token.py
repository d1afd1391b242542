"""Tokens of the HTTP service: token create, list, revoke."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from tasklib.cli.command import Cli, Commands
from tasklib.cli.exit_codes import CommandFailed, Exit
from tasklib.cli.options import values
from tasklib.cli.options.declare import argument, option
from tasklib.cli.show.output import Column

if TYPE_CHECKING:
    from tasklib.service.tokens import Token

app = Commands("Service")

RoleName = Literal["producer", "worker", "viewer", "operator", "admin"]


@app.add(creates=True)
def token(
    cli: Cli,
    what: Annotated[Literal["create", "list", "revoke"], argument("create|list|revoke", "What to do.")],
    name: Annotated[
        str | None,
        argument(
            "NAME", "Name of the token's owner. To revoke: a name (all its tokens), a token, or its first characters."
        ),
    ] = None,
    role: Annotated[
        RoleName, option("ROLE", "producer, worker, viewer, operator or admin.  [default: viewer]")
    ] = "viewer",
    expires: Annotated[str | None, option("WHEN", "30d, or a date and time.  [default: never]")] = None,
) -> None:
    """Create, list and revoke tokens for the HTTP service.

    A token is shown once; only its hash is kept.

    Examples:
        tasklib token create ci --role producer --expires 90d
        tasklib token list
        tasklib token revoke ci
    """
    if what == "list":
        _list(cli)
    elif name is None:
        raise CommandFailed(f"whose? name it: tasklib token {what} NAME", Exit.USAGE)
    elif what == "create":
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

    cli.out.answer({"token": made.secret, "name": name, "role": role, "expires_at": made.token.expires_at}, say)


def _list(cli: Cli) -> None:
    found = cli.service.tokens.all()
    none = "No tokens: the service is open to this machine. Create one: tasklib token create NAME"
    cli.out.answer_list({"tokens": found}, lambda: _show(cli, found), none)


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
