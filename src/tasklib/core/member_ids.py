"""Ids of groups and of their members: a member's follows from its group and its place, in the order of the inputs.

They are UUIDv7s that count up, as those of tasks that are submitted together: random ones would send each claim and
each end of a child to another page of the index, and cost a third more.  So members are found as a range of the primary
key, and need no index of their own, which each claim would write to.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tasklib.errors import ConfigurationError

PLACES: Final = 1 << 24
"""Places that fit into an id beside what is the group's own."""


def new_group_id() -> UUID:
    """The id of a new group."""
    from uuid_utils.compat import uuid7

    return uuid7()


def member_id(group: UUID, place: int) -> UUID:
    """The id of the member at this place, counted from 0; the same however often it is asked for."""
    if place >= PLACES:
        raise ConfigurationError(f"a group has at most {PLACES:,} children; divide the inputs among several")
    return UUID(int=group.int - group.int % PLACES + place)
