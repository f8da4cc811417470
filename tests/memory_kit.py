"""Where tests keep files that need not outlive them: in memory, if there is room."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

__all__ = ["memory_folder"]

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 << 30


def memory_folder() -> Path | None:
    """None: on a disk. A database has 300 files, and making one there costs ten times as much.

    What a killed process leaves stays in memory, so a machine may have little of it free.
    """
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES else None
