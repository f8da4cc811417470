"""The versions of WS-ReliableMessaging, and what differs with them on the wire."""

from __future__ import annotations

from typing import Final

import msgspec

from instep_soap import WSA_2004, WSA_2005, WsaVersion

__all__ = ["ANY_RM", "HEADERS", "RM10", "RM11", "RmVersion"]


class RmVersion(msgspec.Struct, frozen=True):
    """A version. 1.2 has the namespace of 1.1 and does not differ from it on the wire."""

    namespace: str
    addressing: WsaVersion
    """The version of WS-Addressing that its specification names; others are read, too."""
    closes: bool
    """Whether it has CloseSequence, and with it None, Final and the responses; else it has
    LastMessage.
    """

    def name(self, local: str) -> str:
        """The name of one of its elements, as lxml writes it."""
        return f"{{{self.namespace}}}{local}"

    def action(self, local: str) -> str:
        """The Action of a message that has no other purpose."""
        return f"{self.namespace}/{local}"

    @property
    def fault_action(self) -> str:
        """The Action of its faults (1.1 section 4); empty: the one of WS-Addressing (1.0)."""
        return self.action("fault") if self.closes else ""


RM10: Final = RmVersion("http://schemas.xmlsoap.org/ws/2005/02/rm", WSA_2004, closes=False)
RM11: Final = RmVersion("http://docs.oasis-open.org/ws-rx/wsrm/200702", WSA_2005, closes=True)

ANY_RM: Final = {version.namespace: version for version in (RM11, RM10)}

HEADERS: Final = frozenset(
    {
        "Sequence",
        "SequenceAcknowledgement",
        "AckRequested",
        "SequenceFault",
        "SequenceCancel",
        "SequenceCancelAcknowledgement",
        "SequenceFill",
    }
)
"""The header blocks that a destination understands."""
