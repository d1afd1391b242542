"""Workers that use HTTP: their requests, and what the service does for them in the background."""
