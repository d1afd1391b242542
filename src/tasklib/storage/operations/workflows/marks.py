"""The bits of the column `tasks.marks`, which is NULL for plain tasks.

SQL has them as numbers: 22 are those that a task loses when it begins from scratch, and `complete_members` flips 64 to
tell the trigger that it has counted the end itself.
"""

from __future__ import annotations

from typing import Final

MEMBER: Final = 1
"""The task is a child that a workflow waits for."""
HAS_UNDOS: Final = 2
"""The task has bound undos, which are submitted if it ends without success."""
HAS_STEPS: Final = 4
"""The task has recorded something."""
OWNER: Final = 16
"""The task has children."""
BEFORE: Final = 32
"""The task is before others in a flow."""
