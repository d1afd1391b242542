"""What a worker does beside running tasks: it stays alive, keeps its claims, takes over from the dead and records."""
