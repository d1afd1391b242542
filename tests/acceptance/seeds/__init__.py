"""Every code block of the five specifications, each a named test."""
