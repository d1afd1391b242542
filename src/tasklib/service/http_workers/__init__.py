"""Workers that speak HTTP: what they ask for, and what the service does for them in the background."""
