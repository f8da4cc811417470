"""Counts what the sequences of all peers buffer, and whether there is room for more (S8)."""

from __future__ import annotations

from collections.abc import Mapping

from instep.ports.message_store import SenderUsage
from instep.runtime.settings import IntakeSettings

__all__ = ["InboxUsage"]


class InboxUsage:
    """Counts of sequences and of buffered messages and bytes, in all and by peer (S8).

    They include the decisions of the group that is not committed yet. When its commit fails, the
    counts are read from the store again.
    """

    def __init__(self, limits: IntakeSettings, peers: Mapping[str, SenderUsage]) -> None:
        self._limits = limits
        self._peers = dict(peers)
        self.total = SenderUsage()
        for usage in peers.values():
            _add(self.total, usage.sequences, usage.messages, usage.size_bytes)

    def __repr__(self) -> str:
        return f"<InboxUsage {self.total}, {len(self._peers)} peers>"

    def has_room_for_sequence(self, peer: str) -> bool:
        """Whether this peer may have one sequence more."""
        limits, usage = self._limits, self._peers.get(peer)
        return self.total.sequences < limits.limit_sequences and (
            usage is None or usage.sequences < limits.limit_sequences_per_sender
        )

    def has_room(self, peer: str, messages: int, size_bytes: int) -> bool:
        """Whether this many more messages, of `size_bytes` together, may be buffered for a peer."""
        limits, total = self._limits, self.total
        usage = self._peers.get(peer) or SenderUsage()
        return (
            total.messages + messages <= limits.limit_buffered_messages
            and total.size_bytes + size_bytes <= limits.limit_buffered_bytes
            and usage.messages + messages <= limits.limit_buffered_messages_per_sender
            and usage.size_bytes + size_bytes <= limits.limit_buffered_bytes_per_sender
        )

    def add(self, peer: str, sequences: int, messages: int, size_bytes: int) -> None:
        """Add to the counts of a peer; negative numbers subtract."""
        usage = self._peers.get(peer)
        if usage is None:
            usage = self._peers[peer] = SenderUsage()
        _add(usage, sequences, messages, size_bytes)
        _add(self.total, sequences, messages, size_bytes)
        if usage.sequences <= 0:
            del self._peers[peer]


def _add(usage: SenderUsage, sequences: int, messages: int, size_bytes: int) -> None:
    usage.sequences += sequences
    usage.messages += messages
    usage.size_bytes += size_bytes
