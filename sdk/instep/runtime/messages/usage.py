"""Counts what the sequences of all peers buffer and what is dead, and whether there is room for
more (S8, S13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from instep.ports.message_store import SenderUsage
from instep.runtime.settings import IntakeSettings

__all__ = ["InboxUsage"]

_SHARES: Final = 10
"""A sender may fill one of so many equal parts of the dead letter."""
_WARN_SHARE: Final = 0.8


class InboxUsage:
    """Counts of sequences and of buffered and dead messages and bytes, in all and by peer.

    They include the decisions of the group that is not committed yet. When its commit fails, the
    counts are read from the store again.
    """

    def __init__(self, limits: IntakeSettings, peers: Mapping[str, SenderUsage]) -> None:
        self.limits = limits
        self._peers = dict(peers)
        self.total = SenderUsage()
        for usage in peers.values():
            _add(self.total, usage)
        self._warned = set[str]()
        """Peers whose share is nearly full, and was told; the empty one is all."""
        self.dead_since_us = min(
            (one.dead_since_us for one in peers.values() if one.dead_since_us), default=0
        )
        """Since when the oldest message is in the dead letter; 0: there is none."""

    def __repr__(self) -> str:
        return f"<InboxUsage {self.total}, {len(self._peers)} peers>"

    @property
    def _share_messages(self) -> int:
        """What one sender may fill of the dead letter."""
        limits = self.limits
        return limits.limit_dead_messages_per_sender or max(
            1, limits.limit_dead_messages // _SHARES
        )

    @property
    def _share_bytes(self) -> int:
        limits = self.limits
        return limits.limit_dead_bytes_per_sender or max(1, limits.limit_dead_bytes // _SHARES)

    def has_room_for_sequence(self, peer: str) -> bool:
        """Whether this peer may have one sequence more."""
        limits, usage = self.limits, self._peers.get(peer)
        return self.total.sequences < limits.limit_sequences and (
            usage is None or usage.sequences < limits.limit_sequences_per_sender
        )

    def has_room(
        self, peer: str, messages: int, size_bytes: int, sequence: tuple[int, int] = (0, 0)
    ) -> bool:
        """Whether this many more messages, of `size_bytes` together, may be buffered for a peer:
        each takes a place in the dead letter, because it may end there (S13).

        `sequence`: the messages of the sequence that have one already, and their bytes.
        """
        limits, total = self.limits, self.total
        usage = self._peers.get(peer) or SenderUsage()
        return (
            total.messages + messages <= limits.limit_buffered_messages
            and total.size_bytes + size_bytes <= limits.limit_buffered_bytes
            and usage.messages + messages <= limits.limit_buffered_messages_per_sender
            and usage.size_bytes + size_bytes <= limits.limit_buffered_bytes_per_sender
            and total.messages + total.dead_messages + messages <= limits.limit_dead_messages
            and total.size_bytes + total.dead_bytes + size_bytes <= limits.limit_dead_bytes
            and usage.messages + usage.dead_messages + messages <= self._share_messages
            and usage.size_bytes + usage.dead_bytes + size_bytes <= self._share_bytes
            and sequence[0] + messages
            <= (limits.limit_dead_messages_per_sequence or self._share_messages)
            and sequence[1] + size_bytes
            <= (limits.limit_dead_bytes_per_sequence or self._share_bytes)
        )

    def add(self, peer: str, sequences: int, messages: int, size_bytes: int) -> None:
        """Add to the counts of a peer; negative numbers subtract."""
        self._change(peer, SenderUsage(sequences, messages, size_bytes))

    def add_dead(self, peer: str, messages: int, size_bytes: int, now_us: int) -> None:
        """Add messages to the dead letter of a peer."""
        if messages and not self.dead_since_us:
            self.dead_since_us = now_us
        self._change(peer, SenderUsage(0, 0, 0, messages, size_bytes))

    def discards_kept(self) -> tuple[int, int]:
        """How many discarded messages, and bytes of them, the dead letter has room for."""
        limits, total = self.limits, self.total
        return (
            max(0, limits.limit_dead_messages - total.dead_messages),
            max(0, limits.limit_dead_bytes - total.dead_bytes),
        )

    def old_since_us(self, now_us: int) -> int:
        """Since when the oldest message is in the dead letter, where that is too long ago; 0: it is
        not.
        """
        warn_us = self.dead_since_us + int(self.limits.warn_dead_after_s * 1_000_000)
        return self.dead_since_us if self.dead_since_us and warn_us <= now_us else 0

    def warnings(self) -> list[str]:
        """What of the dead letter is nearly full and was not told yet; each is told once."""
        limits = self.limits
        parts = [("", self.total, limits.limit_dead_messages, limits.limit_dead_bytes)]
        parts += [
            (peer, usage, self._share_messages, self._share_bytes)
            for peer, usage in self._peers.items()
            if usage.dead_messages
        ]
        told = []
        for peer, usage, messages, size_bytes in parts:
            near = (
                usage.dead_messages >= _WARN_SHARE * messages
                or usage.dead_bytes >= _WARN_SHARE * size_bytes
            )
            if near and peer not in self._warned:
                self._warned.add(peer)
                told.append(
                    f"the dead letter {f'of {peer} ' if peer else ''}is nearly full: "
                    f"{usage.dead_messages:,} of {messages:,} messages, "
                    f"{usage.dead_bytes:,} of {size_bytes:,} bytes"
                )
        return told

    def _change(self, peer: str, more: SenderUsage) -> None:
        usage = self._peers.get(peer)
        if usage is None:
            usage = self._peers[peer] = SenderUsage()
        _add(usage, more)
        _add(self.total, more)
        if usage.sequences <= 0 and usage.dead_messages <= 0:
            del self._peers[peer]


def _add(usage: SenderUsage, more: SenderUsage) -> None:
    usage.sequences += more.sequences
    usage.messages += more.messages
    usage.size_bytes += more.size_bytes
    usage.dead_messages += more.dead_messages
    usage.dead_bytes += more.dead_bytes
