"""What changes while somebody looks: events, cached counts, claims that wait, timeouts."""
