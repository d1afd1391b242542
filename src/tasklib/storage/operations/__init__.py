"""The logic of every storage operation, written once: generators that yield statements and receive rows."""
