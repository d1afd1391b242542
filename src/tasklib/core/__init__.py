"""Pure values and decisions: what a task is, what may happen to it, and when; no I/O."""

from tasklib import installation

if installation.is_overwritten():  # the rest would fail with errors that explain nothing
    raise ImportError(installation.complaint())
