"""What workflows record: steps, events, and groups of tasks that somebody waits for."""
