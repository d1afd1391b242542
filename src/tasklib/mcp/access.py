"""What an agent may do, decided when its server is made: tools that are not allowed do not exist for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tasklib.errors import TaskLibError
from tasklib.service.audit import AuditEntry

Audit = Callable[[str, str | None, dict[str, Any]], AuditEntry | None]
"""The entry of the audit log for an action on a target; None where no log is kept."""


def _no_audit(action: str, target: str | None, detail: dict[str, Any]) -> None:
    return None


def _no_wait() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What one agent may do besides reading."""

    writes: bool = False
    """Whether it may retry, cancel, pause and resume."""
    submit: tuple[str, ...] = ()
    """Patterns of the types that it may submit, such as `report.*`; none without one."""
    actor: str = "agent"
    """Whom the audit log names as having done it."""
    audit: Audit = _no_audit
    submission_wait: Callable[[], float] = _no_wait
    """Takes one submission from the caller's rate: 0, or in how many seconds it may send the next."""
    error_text: Callable[[TaskLibError], str] = str
    """The text of an error that the agent may see."""

    def may_submit(self, name: str) -> bool:
        """Whether the type is on its list."""
        return any(fnmatchcase(name, pattern) for pattern in self.submit)
