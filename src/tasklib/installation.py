"""Whether the files of this package are its own.

Our distribution is called `tasklib-queue`; an older one called `tasklib`, for Taskwarrior, installs files of the same
names.  Whichever comes last overwrites the other's.
"""

from __future__ import annotations

import os
import sys

OURS = "tasklib-queue"
OTHER = "tasklib"
REMEDY = f"pip uninstall {OTHER}, then pip install --force-reinstall --no-deps {OURS}"


def foreign_distribution() -> str | None:
    """The other distribution, as `tasklib 2.5.1`, if it has files in our folder; costs one look at a folder's names."""
    around = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        names = os.listdir(around)
    except OSError:
        return None  # in a zip file nothing is overwritten
    for name in names:
        distribution, _, version = name.removesuffix(".dist-info").partition("-")
        if distribution == OTHER and name.endswith(".dist-info") and _has_our_files(os.path.join(around, name)):
            return f"{distribution} {version}"
    return None


def complaint() -> str | None:
    """What is wrong and what to do about it, if another distribution's files are mixed with ours; else None."""
    other = foreign_distribution()
    if other is not None:
        return (
            f"the distribution {other!r} has files in the same folder as {OURS}; one overwrites the other's: {REMEDY}"
        )
    if is_overwritten():
        where = getattr(sys.modules[OTHER], "__file__", "unknown")
        return f"the module tasklib ({where}) does not come from {OURS}, but from another distribution: {REMEDY}"
    return None


def is_overwritten() -> bool:
    """Whether the package's first file is another's: the rest of ours cannot work then."""
    return "TaskQueue" not in getattr(sys.modules[OTHER], "__all__", ())


def _has_our_files(information: str) -> bool:
    try:
        with open(os.path.join(information, "RECORD"), encoding="utf-8") as record:
            return any(line.startswith(f"{OTHER}/__init__.py,") for line in record)
    except OSError:
        return False
