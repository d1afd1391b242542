"""`python -m tasklib` is the command line."""

import sys

from tasklib.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
