"""`python -m tasklib` is the command line, and so is `tasklib`."""

import gc
import sys

from tasklib.cli.main import main


def program() -> None:
    """Run one command and end this process with its exit code."""
    code = main()
    # The interpreter looks for cycles in everything that was imported before it ends, which takes the service longer
    # than half of its start. Whatever matters is closed by now, and the memory goes back to the system as a whole.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    program()
