"""A schema that was made for a while only."""

from __future__ import annotations

from tasklib.storage.statement import Operation, Statement


def drop_schema() -> Operation[None]:
    """Remove the whole schema with everything in it; only for one that the caller has made."""
    yield Statement("drop_schema")
