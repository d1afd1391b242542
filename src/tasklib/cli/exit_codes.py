"""Exit codes: one table for the program, its help and the docs."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DATABASE = 3
    WORKER = 4
    TIMEOUT = 5
    INTERNAL = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    Exit.OK: "done",
    Exit.FAILED: "the action failed: no such task, its state forbids it, a unique key is in use, or the task failed",
    Exit.USAGE: "invalid command, option or value",
    Exit.DATABASE: "the database cannot be reached or used, or its schema does not fit",
    Exit.WORKER: "the worker stopped: too many of its threads are stuck",
    Exit.TIMEOUT: "the task did not finish in the time given",
    Exit.INTERNAL: "a bug in tasklib; TASKLIB_DEBUG=1 shows where",
    Exit.INTERRUPTED: "interrupted from the keyboard",
    Exit.PIPE_CLOSED: "the reader of the output closed the pipe",
}


class CommandFailed(Exception):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


def code_for(error: Exception) -> Exit:
    """The exit code of an error; INTERNAL for an unexpected one."""
    from tasklib import errors

    if isinstance(error, CommandFailed):
        return error.code
    table: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Exit], ...] = (
        (errors.StorageError, Exit.DATABASE),
        ((errors.ConfigurationError, errors.InvalidArguments), Exit.USAGE),
        (errors.WaitTimeout, Exit.TIMEOUT),
        ((errors.WorkerStuck, errors.WorkerLost, errors.ClaimLost), Exit.WORKER),
        (errors.TaskLibError, Exit.FAILED),
    )
    return next((code for kinds, code in table if isinstance(error, kinds)), Exit.INTERNAL)
