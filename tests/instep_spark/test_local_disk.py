"""Which folders are on a disk of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep_spark.local_disk import is_on_local_disk

# As in proc(5): a space is \\040.
MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:45 / /data rw,relatime shared:9 master:1 - nfs4 server:/export rw,vers=4.2
31 30 8:17 / /data/own\\040disk rw - xfs /dev/sdb1 rw
32 22 0:50 / /mnt/bucket rw - fuse.s3fs s3fs rw
"""


@pytest.mark.parametrize(
    ("folder", "local"),
    [
        ("/lake", True),
        ("/data/lake", False),
        ("/data/own disk/lake", True),
        ("/mnt/bucket/lake", False),
        ("/database/lake", True),
    ],
)
def test_the_nearest_mount_tells(tmp_path: Path, folder: str, local: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert is_on_local_disk(Path(folder), mounts) == local


def test_where_mounts_are_not_told_no_folder_is_local(tmp_path: Path) -> None:
    assert not is_on_local_disk(tmp_path, tmp_path / "missing")


def test_the_folder_of_a_test_is_on_a_disk_of_this_machine(tmp_path: Path) -> None:
    assert is_on_local_disk(tmp_path)
