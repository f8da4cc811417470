"""Counts what all streams of a source buffer, so that many streams together are bounded too."""

from __future__ import annotations

__all__ = ["HeldBytes"]


class HeldBytes:
    """The bytes in the buffers of all streams of a source. The feeds count; each obeys.

    A stream that holds whole messages stops reading while all together hold too many: its consumer
    takes them, and then it reads again. One that holds none goes on, so that each comes to its
    next message. An unfinished message cannot wait: over the limit its connection is ended.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.messages_bytes = 0
        """Of whole messages that were not taken yet."""
        self.unfinished_bytes = 0
        """Of messages whose last fragment has not come yet."""

    def __repr__(self) -> str:
        held = f"{self.messages_bytes:,} and {self.unfinished_bytes:,} unfinished"
        return f"<HeldBytes {held} of {self.limit_bytes:,}>"
