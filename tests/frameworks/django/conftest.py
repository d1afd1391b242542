"""The project's own tests are run by its own program."""

collect_ignore = ["project"]
