"""The command line: one module per group of commands, each a few lines over `tasklib.service`."""
