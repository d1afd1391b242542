"""Fails when a type on the public interface is unknown to a type checker, or a public name has no documentation.

Types that are written as inferred (`x = 0.0`) are fine: every checker we run agrees on them.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> int:
    """Ask pyright what a user's type checker would see of the installed package."""
    command = [sys.executable, "-m", "pyright", "--verifytypes", "tasklib", "--ignoreexternal", "--outputjson"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        seen = json.loads(answer.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        sys.stderr.write(answer.stdout + answer.stderr)
        return 1
    unknown = [each["name"] for each in seen["symbols"] if each["isExported"] and not _is_fine(each)]
    for name in unknown:
        sys.stderr.write(f"{name}: its type is unknown; annotate it\n")
    return 1 if unknown else 0


def _is_fine(symbol: dict[str, object]) -> bool:
    # Django has no types, and so its models, admin pages and migrations have none; ours there is annotated.
    of_django = str(symbol["name"]).startswith("tasklib.contrib.django.")
    return bool(symbol["isTypeKnown"]) or bool(symbol.get("isTypeAmbiguous")) or of_django


if __name__ == "__main__":
    sys.exit(main())
