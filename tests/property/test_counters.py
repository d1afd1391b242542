"""The lifecycle's counters and the retry policy, for every story a faithful worker can tell.  Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasklib.core.lifecycle import EFFECTS, TRANSITIONS, Event, Phase
from tasklib.core.retry import Backoff

ENDINGS = st.sampled_from([Event.RETRY_LATER, Event.SNOOZE, Event.RELEASE, Event.LOSE])
backoffs = st.builds(
    Backoff,
    base=st.floats(0, 1e6),
    multiplier=st.floats(1, 10),
    cap=st.floats(0, 1e7),
    jitter=st.floats(0, 1),
    rng=st.builds(lambda value: lambda: value, st.floats(0, 1, exclude_max=True)),
)


def lived(story: list[Event], max_retries: int) -> tuple[Phase, int, int]:
    """Phase, attempts and retry_count after the story; a failure without retries left ends the task."""
    phase, attempts, retry_count = Phase.PENDING, 0, 0
    for wanted in story:
        phase = _after(phase, Event.CLAIM)
        attempts += 1
        event = wanted
        if retry_count >= max_retries:
            event = {Event.RETRY_LATER: Event.GIVE_UP, Event.LOSE: Event.BURY}.get(wanted, wanted)
        phase = _after(phase, event)
        if event in EFFECTS:
            attempts -= EFFECTS[event].refund
            retry_count += EFFECTS[event].retried
        if phase in (Phase.FAILED, Phase.BURIED):
            break
    return phase, attempts, retry_count


def _after(phase: Phase, event: Event) -> Phase:
    found = TRANSITIONS[phase, event]
    assert found is not None
    return found


@given(st.lists(ENDINGS, max_size=40), st.integers(0, 5))
def test_no_story_spends_more_than_its_attempts(story: list[Event], max_retries: int):
    _, attempts, retry_count = lived(story, max_retries)

    assert attempts <= max_retries + 1
    assert retry_count <= max_retries


@given(st.lists(ENDINGS, max_size=40), st.integers(0, 5))
def test_giving_up_leaves_full_counters(story: list[Event], max_retries: int):
    phase, attempts, retry_count = lived(story, max_retries)

    if phase in (Phase.FAILED, Phase.BURIED):
        assert (attempts, retry_count) == (max_retries + 1, max_retries)


@given(st.lists(ENDINGS, max_size=40), st.integers(0, 5))
def test_failures_beyond_the_attempts_always_end_the_task(story: list[Event], max_retries: int):
    failures = [event for event in story if event in (Event.RETRY_LATER, Event.LOSE)]
    phase, _, _ = lived(story, max_retries)

    assert (phase in (Phase.FAILED, Phase.BURIED)) is (len(failures) > max_retries)


@given(st.lists(st.sampled_from([Event.SNOOZE, Event.RELEASE]), max_size=40))
def test_snoozing_and_releasing_spend_nothing(story: list[Event]):
    assert lived(story, 0)[1:] == (0, 0)


@given(backoffs, st.integers(0, 200))
def test_jitter_keeps_the_delay_within_its_fraction_and_the_cap(policy: Backoff, retry_count: int):
    mean, delay = policy.mean(retry_count), policy(retry_count)

    assert mean * (1 - policy.jitter) * 0.999 <= delay <= min(mean * (1 + policy.jitter) * 1.001, policy.cap)


@given(backoffs, st.integers(0, 200), st.integers(0, 200))
def test_more_retries_never_wait_less_on_average(policy: Backoff, one: int, other: int):
    assert policy.mean(min(one, other)) <= policy.mean(max(one, other))


@given(backoffs, st.integers(0, 200))
def test_the_error_does_not_change_the_default_policy(policy: Backoff, retry_count: int):
    assert policy(retry_count, ValueError()) == policy(retry_count, None)
