"""Steps that several tests of the pages take."""

from __future__ import annotations

import re
from uuid import UUID

from playwright.sync_api import Page, expect

from tasklib import TaskQueue

GO = """path => {
    history.pushState(null, '', path);
    dispatchEvent(new PopStateEvent('popstate'));
    return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
}"""


def go(page: Page, path: str) -> None:
    """Show another page of the site, as a link does: much faster than a new start."""
    page.evaluate(GO, path)


def cancelled(queue: TaskQueue, name: str = "email.send", number: int = 1) -> list[UUID]:
    """Tasks that can be retried and deleted."""
    ids = [queue.enqueue(name, {"n": n}).id for n in range(number)]
    for task_id in ids:
        queue.cancel(task_id)
    return ids


def confirm(page: Page, verb: str) -> str:
    """Answer the question with yes; what was asked."""
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name=re.compile(f"^{verb}"))
    expect(button).to_be_enabled()
    text = dialog.inner_text()
    button.click()
    expect(dialog).to_have_count(0)
    return text
