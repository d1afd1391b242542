"""From a call to rows: the decorated function, the options of one submission, merging of concurrent ones, streams."""

from tasklib.submission.function import ContextDecorator, ContextTaskFunction, Submitter, TaskFunction
from tasklib.submission.merge import Merger
from tasklib.submission.new_task import mark_secrets, new_task, with_secrets
from tasklib.submission.stream import CHUNK
from tasklib.submission.submit_options import NO_OPTIONS, SubmitKeywords, SubmitOptions

__all__ = [
    "CHUNK",
    "NO_OPTIONS",
    "ContextDecorator",
    "ContextTaskFunction",
    "Merger",
    "SubmitKeywords",
    "SubmitOptions",
    "Submitter",
    "TaskFunction",
    "mark_secrets",
    "new_task",
    "with_secrets",
]
