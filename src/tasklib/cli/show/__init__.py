"""Output of commands: text and tables for people, JSON for programs."""
