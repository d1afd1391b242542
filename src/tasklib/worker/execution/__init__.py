"""Running attempts: where each runs, how it is stopped, and how it ended."""
