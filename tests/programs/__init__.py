"""Programs that tests run in other processes."""
