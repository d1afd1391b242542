"""Reading tasks: lists, scans in bounded steps, and why a task is not running."""
