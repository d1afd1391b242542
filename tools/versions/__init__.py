"""Runs the tests on every supported version that can be had here; says which were not run."""
