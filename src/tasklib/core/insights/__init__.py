"""What people are told about a queue: why a task waits, what is wrong, how many workers it takes."""
