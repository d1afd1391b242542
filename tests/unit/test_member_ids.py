"""Ids of members, which follow from their group's."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from tasklib.core.member_ids import PLACES, member_id, new_group_id
from tasklib.errors import ConfigurationError


def test_they_count_up_in_the_order_of_the_inputs_and_keep_the_time_of_their_group() -> None:
    group = new_group_id()
    ids = [member_id(group, place) for place in range(3000)]

    assert all(one.int + 1 == two.int for one, two in pairwise(ids))
    assert {each.version for each in ids} == {7}
    assert {each.int >> 80 for each in ids} == {group.int >> 80}


def test_no_two_groups_share_one() -> None:
    groups = [new_group_id() for _ in range(3000)] + [uuid4() for _ in range(3000)]

    assert len({member_id(group, 0) for group in groups}) == len(groups)


@pytest.mark.parametrize(
    "place, expected",
    [
        (0, "01a1f094-8a90-726e-8cd0-62b776000000"),
        (7, "01a1f094-8a90-726e-8cd0-62b776000007"),
        (PLACES - 1, "01a1f094-8a90-726e-8cd0-62b776ffffff"),
    ],
)
def test_a_place_has_the_same_id_in_every_process_and_version(place: int, expected: str) -> None:
    assert str(member_id(UUID("01a1f094-8a90-726e-8cd0-62b776c92135"), place)) == expected


def test_a_place_that_does_not_fit_beside_the_group_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"at most 16,777,216 children; divide the inputs"):
        member_id(new_group_id(), PLACES)
