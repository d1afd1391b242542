"""Authentication, rate limits per caller, local callers, refused requests."""
