"""The command line: one module per group of commands, each a few lines over `tasklib.service`."""

import sys

from tasklib import installation

if installation.is_overwritten():
    sys.exit(f"error: {installation.complaint()}")
