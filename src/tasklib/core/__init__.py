"""Pure values and decisions: what a task is, what may happen to it, and when; no I/O."""
