"""Claiming tasks: when, which, and from where in their order."""
