"""Outcomes of attempts: written to the database, counted, and logged."""
