"""Live data: cached counts, and events."""
