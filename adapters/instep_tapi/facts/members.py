"""Reads members of a TAPI entity, whatever the names of their modules: pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from instep.model.storable import storable_text
from instep_tapi.facts.names import MAX_NAME_CHARS, short_identity

__all__ = [
    "UNREADABLE",
    "flag",
    "identity",
    "identity_member",
    "plain_members",
    "read_json",
    "text_member",
]

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode: Final = msgspec.json.Decoder().decode


def read_json(json: bytes | bytearray) -> Any:
    """The document; None for what is none."""
    try:
        return _decode(json) if json else None
    except UNREADABLE:
        return None


def plain_members(value: Any) -> dict[str, Any]:
    """The members of an object without the names of their modules; of anything else none."""
    if not isinstance(value, dict):
        return {}
    if ":" not in "".join(value):
        return value
    return {name.rpartition(":")[2]: inner for name, inner in value.items()}


def text_member(members: dict[str, Any], name: str) -> str | None:
    """A text that is stated and not empty, as a database can store it."""
    value = members.get(name)
    return storable_text(value) if isinstance(value, str) and value else None


def identity_member(members: dict[str, Any], name: str) -> str | None:
    """The short name of an identity that is stated."""
    return identity(text_member(members, name))


def identity(text: str | None) -> str | None:
    """The short name of an identity; None for what is too long to be one, or says nothing."""
    if not text or len(text) > MAX_NAME_CHARS:
        return None
    return short_identity(text) or None


def flag(value: Any) -> bool | None:
    """A truth value, also as a text; None for anything else."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    return value if isinstance(value, bool) else None
