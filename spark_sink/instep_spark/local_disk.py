"""Whether a folder is on a disk of this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["is_on_local_disk"]

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LOCAL: Final = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"}
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def is_on_local_disk(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether the folder is in a file system that no other machine writes to, on Linux; elsewhere
    that is not known, and so it is not.
    """
    try:
        lines = mounts.read_text("utf-8").splitlines()
    except OSError:
        return False
    inside = [folder.resolve(), *folder.resolve().parents]
    kind_by_place: dict[Path, str] = {}
    for line in lines:
        # proc(5): "36 35 98:0 /root /mount/point options … - type source options"
        before, _, after = line.partition(" - ")
        place = _OCTAL.sub(lambda match: chr(int(match[1], 8)), before.split()[4])
        kind_by_place[Path(place)] = after.split()[0]
    nearest = next((place for place in inside if place in kind_by_place), None)
    return nearest is not None and kind_by_place[nearest] in _LOCAL
