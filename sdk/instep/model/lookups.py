"""What a request for one entity shows, and what the answer proves (A17). Plain data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["EntityProof", "LookupAnswer", "LookupVerdict"]


class LookupVerdict(StrEnum):
    """What the provider says of one entity."""

    SHOWN = "shown"
    """It states the entity."""
    ABSENT = "absent"
    """It says that there is no such entity. Alone that proves nothing: a provider may say so of
    what it does not show (A19).
    """
    UNKNOWN = "unknown"
    """The answer says nothing of the entity: an error, a page of HTML, another entity."""


class LookupAnswer(msgspec.Struct, frozen=True):
    """The answer to a request for one entity."""

    verdict: LookupVerdict
    body: bytes = b""
    """The entity as JSON, with identifiers in the place of entities that have records of their own;
    empty unless it is shown.
    """
    contained: frozenset[str] = frozenset()
    """Members, without prefix, that hold such entities: two statements that differ only there are
    alike (A13).
    """
    reason: str = ""
    """Why it is unknown."""


class EntityProof(msgspec.Struct, frozen=True):
    """What was proven of an entity that was unproven. A sink applies it only where the stored row
    still has this token: else the stream has stated it meanwhile.
    """

    key: str
    token: str
    exists: bool
    body: bytes = b""
    """What the entity is, where that is not what is stored."""
