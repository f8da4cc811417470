"""The version of a lake: each of its tables states it, and one of another version is refused."""

from __future__ import annotations

from typing import Final

from instep.errors import SinkError, StoreVersionError

__all__ = ["LAKE_VERSION", "check_version"]

LAKE_VERSION: Final = 100
"""That of 0.1.0. It grows with each change of the tables' columns; lakes that were made before have
numbers below.
"""


def check_version(stated: object, where: str) -> None:
    """Raise `SinkError` unless a table that states this version is one of ours, and
    `StoreVersionError` unless it is of the version that is known here.
    """
    version = str(stated)
    if not version.isdecimal():
        raise SinkError(
            "the table was not made by instep",
            where=where,
            hint="name another lake, or move the table away",
        )
    found = int(version)
    if found < LAKE_VERSION:
        raise StoreVersionError(
            "the lake was made before 0.1.0, and nothing is carried over from there",
            where=where,
            hint="make it anew: name another lake, or move this one away",
            found=found,
            known=LAKE_VERSION,
        )
    if found > LAKE_VERSION:
        raise StoreVersionError(
            f"the table has version {found}, this instep knows versions up to {LAKE_VERSION}",
            where=where,
            hint="upgrade instep, or use another lake",
            found=found,
            known=LAKE_VERSION,
        )
