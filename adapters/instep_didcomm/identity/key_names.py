"""How peers name a key other than its document does: by the beginning of its multibase value.

The libraries of 2021 to 2024 that wrote did:peer:2 named a key by its value: peerdid-python by the
first eight characters behind the ``z`` of base58 (``#6LSbysY2``), or by all of them. Today's
documents name the same keys ``#key-1``, ``#key-2``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeVar

from aries_askar import Key, KeyAlg
from didcomm_messaging.multiformats import multibase

__all__ = ["AmbiguousNameError", "Relation", "find_by_value", "fits", "multikey_of"]

T = TypeVar("T")

Relation = Literal["key_agreement", "authentication"]
"""What a key of a DID document may be used for."""

_LEAST_CHARS: Final = 6
"""Shortest name that is looked for, without the ``z``: the kind of the key takes the first three or
four characters, so that a shorter one says little of the key itself.
"""
_CODECS: Final = {
    KeyAlg.ED25519: b"\xed\x01",
    KeyAlg.X25519: b"\xec\x01",
    KeyAlg.K256: b"\xe7\x01",
    KeyAlg.P256: b"\x80\x24",
}
"""The multicodec of the public keys, as a varint."""
_UNFIT: Final = {"key_agreement": "z6Mk", "authentication": "z6LS"}
"""How keys begin that cannot do it: Ed25519 agrees on no key, X25519 signs nothing."""


class AmbiguousNameError(ValueError):
    """A name with which the values of several keys begin."""


def multikey_of(key: Key) -> str:
    """The multibase value of a public key; empty for a curve that has none here."""
    codec = _CODECS.get(key.algorithm)
    if codec is None:
        return ""
    return str(multibase.encode(codec + key.get_public_bytes(), "base58btc"))


def fits(multikey: str, relation: Relation) -> bool:
    """Whether a key of this value can be used so."""
    return bool(multikey) and not multikey.startswith(_UNFIT[relation])


def find_by_value(fragment: str, keys: Iterable[tuple[str, T]]) -> T | None:
    """The key whose multibase value begins with this name, or is it, with or without the ``z``;
    None: there is none.

    Args:
        fragment: What follows the ``#``.
        keys: Multibase value and key.

    Raises `AmbiguousNameError`: there are several.
    """
    name = fragment.removeprefix("z")
    if len(name) < _LEAST_CHARS:
        return None
    found = {value: key for value, key in keys if value.removeprefix("z").startswith(name)}
    if len(found) > 1:
        raise AmbiguousNameError(f"names {len(found)} keys: their values begin alike")
    return next(iter(found.values()), None)
