"""Workflows: tasks whose functions record steps, and wait without a slot."""
