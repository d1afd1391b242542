"""Answers to people's questions about a queue: why a task waits, what is wrong, how many workers it takes."""
