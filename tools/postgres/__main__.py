"""Lists the PostgreSQL versions at hand, or runs one until Ctrl-C.

Usage: python -m tools.postgres [version]
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from tools.postgres import available, start


def main(arguments: list[str]) -> None:
    installations = {str(installation.version): installation for installation in available()}
    match arguments:
        case []:
            for version, installation in installations.items():
                print(version, installation.bindir)
        case [version] if version in installations:
            with start(installations[version], durable=True) as server, suppress(KeyboardInterrupt):
                print(server.url, flush=True)
                signal.pause()
        case _:
            sys.exit(f"{__doc__}\nInstalled: {', '.join(installations) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
