"""How signatures of operations read in the API reference: with what a caller gets, not with the generator behind it."""

from __future__ import annotations

from typing import Any

import griffe


class OperationResults(griffe.Extension):
    """`get(...) -> Operation[Task | None]`, as it is written in the source, is shown as `-> Task | None`."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        text = str(func.returns or "")
        if text.startswith("Operation["):
            func.returns = text.removeprefix("Operation[").removesuffix("]")
