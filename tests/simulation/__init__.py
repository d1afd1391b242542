"""Deterministic simulation: real workers, producers and people on virtual time, with faults drawn from one seed."""
