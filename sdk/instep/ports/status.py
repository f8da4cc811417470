"""What a store says of its streams, read in one go for `instep status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from instep.coordination.lease import LeaseState
from instep.model.entities import StreamStatus

__all__ = ["StoreStatus"]


class StoreStatus(NamedTuple):
    """The streams of a store, and the leases of its consumers by their names."""

    streams: Sequence[StreamStatus]
    leases: Mapping[str, LeaseState]
