"""Makes the shared fixtures known to every test."""

pytest_plugins = ["tests.fixtures.backends", "tests.fixtures.pooler", "tests.fixtures.virtual"]
