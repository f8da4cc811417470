"""Checks `record-authenticity-token`, which proves who appended a record (TR-548 3.10).

TR-548 leaves open what is signed and how. Here it is the log-record as JSON with that member left
out of its header, and without blanks between the members of the record and of its header; every
other byte is as it was received. So a provider signs what it would have sent without the member.

A verifier of another kind is found through the entry-point group `instep.verifiers`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac as hmac_module
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from instep.errors import ConfigurationError
from instep.model.conversion import converter
from instep.ports.plugin import Verifier, VerifierPlugin
from instep_tapi.facts.names import strip_module
from instep_tapi.wire.framing import BadRecord, Fields, decode_fields
from instep_tapi.wire.record_header import text_of

__all__ = ["Hmac", "HmacOptions", "NotAuthentic", "check_authenticity", "hmac"]

_MEMBER: Final = "record-authenticity-token"
_encode = msgspec.json.Encoder().encode


class NotAuthentic(BadRecord):
    """A record without a valid authenticity token; `deviation` is the kind of the deviation."""

    def __init__(self, deviation: str, reason: str) -> None:
        super().__init__(reason)
        self.deviation = deviation


def check_authenticity(raw: bytes, verifier: Verifier) -> None:
    """Raise `NotAuthentic` unless the record's token fits it.

    Raises also what an unreadable record raises.
    """
    record = decode_fields(raw)
    name = _named(record, "log-record-header")
    header = decode_fields(record[name]) if name else {}
    member = _named(header, _MEMBER)
    if member is None:
        raise NotAuthentic(
            "authenticity-missing", f"no {_MEMBER}, and `authenticity` asks for one (TR-548 3.10)"
        )
    token = text_of({_MEMBER: header.pop(member)}, _MEMBER, [])
    assert name is not None
    record[name] = msgspec.Raw(_encode(header))
    if not verifier.verify(_encode(record), token):
        raise NotAuthentic(
            "authenticity-failed",
            f"its {_MEMBER} does not fit the key under `authenticity` (TR-548 3.10)",
        )


def _named(members: Fields, name: str) -> str | None:
    return next((member for member in members if strip_module(member) == name), None)


class HmacOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that provider and consumer share (RFC 2104)."""

    secret: str
    """The secret; write it as ``${NAME}``."""
    algorithm: Literal["sha256", "sha384", "sha512"] = "sha256"
    """Of the hash."""
    encoding: Literal["base64", "hex"] = "base64"
    """How the token is written."""

    def __repr__(self) -> str:
        return f"HmacOptions(secret=***, algorithm={self.algorithm!r})"


_hmac_options: Final = converter(HmacOptions)


class Hmac:
    """Signs and verifies. Implements `Verifier`."""

    def __init__(self, options: HmacOptions) -> None:
        self._base64 = options.encoding == "base64"
        self._keyed = hmac_module.new(
            options.secret.encode(), digestmod=getattr(hashlib, options.algorithm)
        )

    def __repr__(self) -> str:
        return f"<Hmac {self._keyed.name}>"

    def _digest(self, record: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(record)
        return keyed.digest()

    def sign(self, record: bytes) -> str:
        """The token of a record that has none yet."""
        digest = self._digest(record)
        return base64.b64encode(digest).decode() if self._base64 else digest.hex()

    def verify(self, record: bytes, token: str) -> bool:
        try:
            stated = (
                base64.b64decode(token, validate=True) if self._base64 else bytes.fromhex(token)
            )
        except (binascii.Error, ValueError):
            return False
        return hmac_module.compare_digest(self._digest(record), stated)


class _HmacPlugin:
    def check(self, options: Mapping[str, Any], where: str) -> None:
        self._read(options, where)

    def build(self, options: Mapping[str, Any], where: str) -> Hmac:
        return Hmac(self._read(options, where))

    def _read(self, options: Mapping[str, Any], where: str) -> HmacOptions:
        try:
            read = _hmac_options(dict(options))
        except msgspec.ValidationError as error:
            raise ConfigurationError(str(error), where=where) from None
        if not read.secret:
            raise ConfigurationError("the secret is empty", where=f"{where}.secret")
        return read


hmac: VerifierPlugin = _HmacPlugin()
"""The plug-in object of the entry point `instep.verifiers: hmac`."""
