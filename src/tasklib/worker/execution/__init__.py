"""Running attempts: what is held, where each attempt runs, how it is stopped, and how it ended."""
