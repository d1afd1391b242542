"""Events: emitting them, waiting for them, and delivering them to the steps that wait; none is lost.

To emit an event is one insert.  A wait commits its open step first and then looks for the event, so that either the
wait sees the event or the delivery sees the wait.  A step is filled, and its task suspended, under the task's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from tasklib.core.codec import dumps, is_storable, loads, plain, shown
from tasklib.core.json_schema import misfit
from tasklib.core.lifecycle import phase_of
from tasklib.errors import ClaimLost, ConfigurationError, InvalidPayload, InvalidTransition, TaskNotFound
from tasklib.storage.operations.tasks import get_task
from tasklib.storage.operations.workflows.steps import open_step, wake_tasks
from tasklib.storage.rows import RowReader, json_value, moment, uuid
from tasklib.storage.statement import BEGIN, COMMIT, DONE_BEFORE, Operation, Row, Statement, recall

CHUNK: Final = 1000
"""Tasks that one transaction of a delivery wakes at most."""
NEW_EVENTS: Final = 100
"""How many events without a delivery are looked up at a time."""
MOST_EVENT_BYTES: Final = 256 * 1024
MAX_NAME: Final = 200


def check_event(name: Any) -> str:
    """The name of an event, if it can be one."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not is_storable(name):
        raise ConfigurationError(f"an event's name is a text of 1 to {MAX_NAME} characters, got {shown(name)}")
    return name


def event_text(name: str, payload: Any) -> str:
    """The payload of an event as it is stored; InvalidPayload if it cannot be."""
    return _storable_text(f"the payload of event {name!r}", payload)


def emit(
    name: str, payload: str, to: UUID | None, sender: str | None, *, delivers: bool = True
) -> Operation[int | None]:
    """Store an event; its number, or None if a fact of this name is known already.

    Tried again after a lost reply it finds its own event.  Without `delivers`, in a transaction of the caller's,
    workers are notified to deliver it.
    """
    if to is not None and (yield from get_task(to)) is None:
        raise TaskNotFound(to)
    memory = yield from recall()
    own = {"token": memory.setdefault("token", str(uuid4())) if delivers else None}
    event = {"name": name, "task_id": None if to is None else str(to), "payload": payload, "sender": sender}
    rows = yield Statement("insert_event", event | own)
    if not rows and (rows := (yield Statement("find_own_event", own))):
        memory[DONE_BEFORE] = True
    return rows[0]["id"] if rows else None


def withdraw(name: str) -> Operation[bool]:
    """Forget a fact; False if there is none.  Tasks that have received it keep it."""
    yield BEGIN
    memory = yield from recall()
    forgotten = bool((yield Statement("withdraw_event", {"name": name})))
    if not forgotten and "withdrawn" in memory:
        forgotten = memory[DONE_BEFORE] = True
    if forgotten:
        memory["withdrawn"] = True
    return forgotten


def open_wait(task_id: str, version: int, step: Mapping[str, Any], events: Sequence[str]) -> Operation[None]:
    """Record an open step that waits for events."""
    yield BEGIN
    is_open = yield from open_step({**step, "task_id": task_id, "version": version})
    if events and is_open:
        yield Statement("open_waits", {"id": task_id, "key": step["key"], "events": dumps(list(events))})


def renew_wait(
    task_id: str,
    version: int,
    key: str,
    events: Sequence[str],
    question: Mapping[str, Any] | None,
    seconds: float | None,
) -> Operation[None]:
    """Let an open step wait for what the code asks for now, if that is something else, and as long as it says now."""
    yield BEGIN
    if not (yield Statement("lock_attempt", {"id": task_id, "version": version})):
        raise ClaimLost(UUID(task_id), version)
    (step,) = yield Statement("get_step", {"id": task_id, "key": key})
    if set(json_value(step["events"]) or ()) == set(events) and json_value(step["ask"]) == question:
        return
    asked = {"ask": None if question is None else dumps(question), "events": dumps(list(events))}
    if (yield Statement("renew_wait", {"id": task_id, "key": key, "seconds": seconds} | asked)) and events:
        yield Statement("open_waits", {"id": task_id, "key": key, "events": asked["events"]})


def take_event(task_id: str, version: int, key: str, events: Sequence[str]) -> Operation[dict[str, Any]]:
    """What has become of a step that waits: filled, timed out, or still open with the seconds that are left."""
    yield BEGIN
    if not (yield Statement("lock_attempt", {"id": task_id, "version": version})):
        raise ClaimLost(UUID(task_id), version)
    (step,) = yield Statement("get_step", {"id": task_id, "key": key})
    state, value = step["state"], json_value(step["value"])
    if state == "open" and events:
        found = yield Statement("find_event", {"id": task_id, "events": dumps(list(events))})
        if found:
            state, value = "done", json_value(found[0]["payload"])
            yield from _fill([(task_id, key)], found[0]["payload"], found[0]["name"])
            if found[0]["is_message"]:
                yield Statement("take_message", {"event_id": found[0]["id"], "key": key})
    if state == "open" and step["left"] is not None and step["left"] <= 0:
        state = "failed"
        late = dumps({"type": "WaitTimeout", "message": "nothing came in time"})
        batch = dumps([{"id": task_id, "key": key}])
        # Of a step that waits for children the value says which, and a retry waits for them again.
        filled = {"value": step["value"], "error": late, "note": None}
        yield Statement("fill_steps", {"batch": batch, "state": state, **filled})
    error = json_value(step["error"]) if state == step["state"] else {"type": "WaitTimeout"}
    return {"state": state, "value": value, "error": error, "left": step["left"]}


def deliver_event(event_id: int) -> Operation[None]:
    """Give an event to every step that waits for it, and wake their tasks; harmless if it is done again."""
    rows = yield Statement("get_event", {"id": event_id})
    if not rows:
        return
    event = rows[0]
    if event["task_id"] is not None:
        yield from _deliver_message(event_id, event)
        return
    while True:
        yield BEGIN
        waits = yield Statement("find_waits", {"name": event["name"], "task_id": None, "limit": CHUNK})
        steps = [(str(row["task_id"]), row["key"]) for row in waits]
        if steps:
            yield from _lock(steps)
            yield from _fill(steps, event["payload"], event["name"])
            yield from wake_tasks(task_id for task_id, _ in steps)
        if len(steps) < CHUNK:  # A wait that is opened from here on sees the event by itself.
            yield Statement("mark_delivered", {"id": event_id})
        yield COMMIT
        if len(steps) < CHUNK:
            return


def deliver_new() -> Operation[int]:
    """Deliver some of the events that are only stored yet, by SQL or in a caller's transaction; returns how many."""
    rows = yield Statement("find_new_events", {"limit": NEW_EVENTS})
    for row in rows:
        yield from deliver_event(row["id"])
    return len(rows)


def answer_question(task_id: UUID, key: str, value: Any, sender: str | None = None) -> Operation[None]:
    """Answer a question that a task asks, once: the first answer counts.

    The key is that of the step, or the one that the function gave it, if no other question of the task has it.
    """
    text = _storable_text("the value of the answer", value, field="value")
    yield BEGIN
    memory = yield from recall()
    task = yield from get_task(task_id)
    if task is None:
        raise TaskNotFound(task_id)
    yield from _lock([(str(task_id), key)])
    rows = (yield Statement("find_questions", {"id": str(task_id), "key": key})) if is_storable(key) else ()
    if len(rows) != 1:
        raise ConfigurationError(
            f"task {task_id} asks no question {key!r}; `tasklib steps {task_id}` lists what it asks"
        )
    key, own = rows[0]["key"], {"value": loads(text), "by": sender}
    if rows[0]["state"] != "open":
        if memory.get("answered") == own == {"value": json_value(rows[0]["value"]), "by": rows[0]["note"]}:
            memory[DONE_BEFORE] = True  # the reply to the first try was lost
            return
        raise InvalidTransition(task_id, "answered", "answer", "open")
    if task.completed_at is not None:
        raise InvalidTransition(task_id, phase_of(task), "answer", "waiting")
    memory["answered"] = own
    problem = misfit(loads(text), json_value(rows[0]["ask"])["schema"])
    if problem is not None:
        raise InvalidPayload.of_value("the value of the answer", [problem], field="value")
    yield from _fill([(str(task_id), key)], text, sender)
    yield from wake_tasks([str(task_id)])


def list_questions(limit: int = 100) -> Operation[list[dict[str, Any]]]:
    """Open questions to people, the oldest first."""
    rows = yield Statement("list_questions", {"limit": limit})
    return [
        {
            "task_id": uuid(row["task_id"]),
            "task_name": row["name"],
            "key": row["key"],
            **_asked(row),
            "asked_at": moment(row["started_at"]),
            "until": moment(row["until"]),
        }
        for row in rows
    ]


def _storable_text(what: str, value: Any, *, field: str = "payload") -> str:
    try:
        return dumps(plain(value, what=what, limit=MOST_EVENT_BYTES))
    except InvalidPayload as error:
        raise InvalidPayload.of_value(what, error.problems, field=field) from error


def _asked(row: Row) -> dict[str, Any]:
    """The question and the schema of its answer; one that cannot be read says so instead of failing the whole list."""
    reader = RowReader(row)
    asked = reader.read("ask", json_value) or {}
    question = asked.get("question") or "; ".join(reader.problems)
    return {**asked, "question": question, "schema": asked.get("schema", {})}


def _deliver_message(event_id: int, event: Row) -> Operation[None]:
    """Give a task its messages of this name, the oldest first, to its waits in their order."""
    yield BEGIN
    target = str(event["task_id"])
    yield Statement("lock_tasks", {"ids": dumps([target])})
    waits = yield Statement("find_waits", {"name": event["name"], "task_id": target, "limit": CHUNK})
    woken: list[tuple[str, str]] = []
    for wait in waits:
        found = yield Statement("find_event", {"id": target, "events": dumps([event["name"]])})
        if not found or not found[0]["is_message"]:
            break
        yield from _fill([(target, wait["key"])], found[0]["payload"], event["name"])
        yield Statement("take_message", {"event_id": found[0]["id"], "key": wait["key"]})
        woken.append((target, wait["key"]))
    yield Statement("mark_delivered", {"id": event_id})
    if woken:
        yield from wake_tasks([target])


def _lock(steps: Sequence[tuple[str, str]]) -> Operation[None]:
    yield Statement("lock_tasks", {"ids": dumps(sorted({task_id for task_id, _ in steps}))})


def _fill(steps: Sequence[tuple[str, str]], value: str, note: str | None) -> Operation[None]:
    batch = dumps([{"id": task_id, "key": key} for task_id, key in sorted(steps)])
    yield Statement("fill_steps", {"batch": batch, "state": "done", "value": value, "error": None, "note": note})
