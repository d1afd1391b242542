"""Measurements of one part each: a module has `add_options` and `run`, and its name is that of the workload."""
