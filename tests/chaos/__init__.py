"""Real processes and real kills: a short form of each test runs with the others, the long one in `make chaos`."""
