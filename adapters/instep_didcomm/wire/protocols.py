"""Which protocols use the sequencing headers, as declared in the configuration.

Advanced Sequencing, "Reference": "Protocol definitions MUST declare whether they use any of these
headers." A protocol that is not declared is not sequenced.
"""

from __future__ import annotations

from fnmatch import translate
from functools import lru_cache
from re import compile as compiled

import msgspec

__all__ = ["Protocol", "Protocols", "message_scope", "sequence_scope"]


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of one protocol."""

    type: str
    """Its message types; ``*`` matches any text:  ``https://didcomm.org/auction/1.0/*``."""
    sequenced: bool = True
    """Whether its messages are numbered by `sender_order`."""


class Protocols:
    """The declarations; the first that matches the type of a message applies."""

    def __init__(self, declared: tuple[Protocol, ...]) -> None:
        rules = [(compiled(translate(_literal(p.type))).match, p.sequenced) for p in declared]

        @lru_cache(maxsize=1024)
        def sequenced(message_type: str) -> bool:
            return next((answer for fits, answer in rules if fits(message_type)), False)

        self.sequenced = sequenced
        """Whether messages of this type are numbered."""


def sequence_scope(thid: str, sender: str) -> str:
    """The scope of a sequence: a thread and a sender. Neither contains a blank."""
    return f"{thid} {sender}"


def message_scope(sender: str) -> str:
    """The scope in which ids of unsequenced messages are unique: one per sender."""
    return sender or "anonymous"


def _literal(pattern: str) -> str:
    """Escape all wildcards but ``*``, the only one in a declaration."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
