"""Integrations with frameworks, in real projects of theirs."""
