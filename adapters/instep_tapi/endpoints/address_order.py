"""Which of the addresses of a stream is opened next (TR-548 3.7.2, TAPI 2.4 and later). Pure.

The first that is stated comes first. One that failed comes last, until it has worked again: so
each is tried in turn, and the one that worked stays in use. It is remembered for the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["AddressOrder"]

_MOST_REMEMBERED: Final = 10_000
"""A provider may state new addresses at each discovery."""


class AddressOrder:
    """The addresses of all streams of one source."""

    def __init__(self) -> None:
        self._failed: dict[str, None] = {}
        """Where the last opening failed, the oldest failure first."""

    def next(self, addresses: Sequence[str]) -> str:
        """The address to be opened now, of those of a stream; at least one is given."""
        good = next((one for one in addresses if one not in self._failed), None)
        return good or next(one for one in self._failed if one in addresses)

    def opened(self, address: str) -> None:
        """The stream is open there."""
        self._failed.pop(address, None)

    def failed(self, address: str, addresses: Sequence[str]) -> bool:
        """An opening failed there. Returns whether another of these has not failed since it last
        worked.
        """
        self._failed.pop(address, None)
        self._failed[address] = None
        if len(self._failed) > _MOST_REMEMBERED:
            del self._failed[next(iter(self._failed))]
        return any(one not in self._failed for one in addresses)
