"""Who may use the HTTP service, what they did, and what was asked for twice."""
