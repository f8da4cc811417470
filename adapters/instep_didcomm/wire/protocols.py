"""Which protocols use the sequencing headers, as declared in the configuration.

Advanced Sequencing, "Reference": "Protocol definitions MUST declare whether they use any of these
headers." A protocol that is not declared is not sequenced.
"""

from __future__ import annotations

from fnmatch import translate
from functools import lru_cache
from re import compile as compiled
from typing import Final

import msgspec

from instep.sequencing.settings import SequencerSettings

__all__ = ["Protocol", "Protocols", "message_scope", "peer_of", "sender_of", "sequence_scope"]


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of one protocol."""

    type: str
    """Its message types; ``*`` matches any text:  ``https://didcomm.org/auction/1.0/*``."""
    sequenced: bool = True
    """Whether its messages are numbered by `sender_order`."""
    sequence: SequencerSettings | None = None
    """Its policies and limits, instead of those of the source. A thread has those of the first
    protocol with its own of which a message came.
    """


_UNDECLARED: Final = Protocol("*", sequenced=False)


class Protocols:
    """The declarations; the first that matches the type of a message applies."""

    def __init__(self, declared: tuple[Protocol, ...]) -> None:
        rules = [(compiled(translate(_literal(p.type))).match, p) for p in declared]

        @lru_cache(maxsize=1024)
        def find(message_type: str) -> Protocol:
            return next((p for fits, p in rules if fits(message_type)), _UNDECLARED)

        self.find = find
        """The declaration of a message type; of an undeclared one, one that is not sequenced."""

    def sequenced(self, message_type: str) -> bool:
        """Whether messages of this type are numbered."""
        return self.find(message_type).sequenced


def sequence_scope(thid: str, sender: str, certificate: str = "") -> str:
    """The scope of a sequence: a thread and a sender. Neither contains a blank.

    Where no key proves the sender, `certificate` is the name in the certificate that the message
    came with: what another client sends in the sender's name is a sequence of its own.
    """
    return f"{thid} {certificate} {sender}" if certificate else f"{thid} {sender}"


def message_scope(sender: str, certificate: str = "") -> str:
    """The scope in which ids of unsequenced messages are unique: one per sender."""
    sender = sender or "anonymous"
    return sequence_scope("", sender, certificate) if certificate else sender


def sender_of(scope: str) -> str:
    """The sender of a scope: its DID."""
    return scope.rpartition(" ")[2]


def peer_of(scope: str) -> str:
    """Whose scope it is: the name in its certificate; without one, its DID."""
    rest, _, sender = scope.rpartition(" ")
    return rest.partition(" ")[2] or sender


def _literal(pattern: str) -> str:
    """Escape all wildcards but ``*``, the only one in a declaration."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
