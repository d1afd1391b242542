"""From a call to rows: the decorated function, the options of one submission, merging of concurrent ones, streams."""

from tasklib.submission.functions import Submitter, TaskFunction
from tasklib.submission.merging import Merger
from tasklib.submission.options import NO_OPTIONS, SubmitKeywords, SubmitOptions
from tasklib.submission.rows import mark_secrets, new_task, with_secrets
from tasklib.submission.streaming import CHUNK

__all__ = [
    "CHUNK",
    "NO_OPTIONS",
    "Merger",
    "SubmitKeywords",
    "SubmitOptions",
    "Submitter",
    "TaskFunction",
    "mark_secrets",
    "new_task",
    "with_secrets",
]
