"""Bridges to other libraries, each optional and loaded only when imported."""
