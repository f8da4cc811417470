"""Content codings of requests (RFC 9110 8.4.1): inflates a body in steps, up to its limit.

aiohttp inflates while it reads, in the event loop, whatever becomes of the request. So it only
reads here, and a body is inflated when its request is accepted and it has come whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from instep_http.offload import Offload

__all__ = ["ACCEPTED", "BodyTooBigError", "CorruptBodyError", "coding_of", "inflate"]

ACCEPTED: Final = "gzip, deflate"
"""The codings that are understood, as Accept-Encoding states them."""

_CODINGS: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_GZIP: Final = 16 + zlib.MAX_WBITS
_STEP_BYTES: Final = 64 * 1024
"""Of the input and of the output of one step: a step takes a few milliseconds at most."""
_MOST_MEMBERS: Final = 1_024


class BodyTooBigError(Exception):
    """The body is longer than its limit."""


class CorruptBodyError(Exception):
    """The body is not of its coding: cut off, changed, or with something behind its end."""


def coding_of(fields: Sequence[str]) -> str | None:
    """The coding of a body, by its fields of Content-Encoding (RFC 9110 8.4): "gzip", "deflate", or
    "" for none. None: another one, or more than one.
    """
    if not fields:
        return ""
    names = [name.strip().lower() for field in fields for name in field.split(",")]
    codings = [name for name in names if name not in {"", "identity"}]
    if not codings:
        return ""
    return _CODINGS.get(codings[0]) if len(codings) == 1 else None


async def inflate(coding: str, raw: bytes, limit_bytes: int, offload: Offload) -> bytes:
    """Inflate a body. More than one step of it is inflated off the loop.

    Args:
        coding: "gzip" (RFC 1952, any number of members) or "deflate" (RFC 1950, or RFC 1951 as
            some clients send it).
        raw: The body as it came.
        limit_bytes: Most bytes that it may have inflated; at most one step more is produced.
        offload: Where long ones run.

    Raises:
        BodyTooBigError: It is longer.
        CorruptBodyError: It cannot be inflated.
        Busy: See `Offload.run`.
    """
    if not raw:
        return b""  # nothing at all is no body, in any coding
    inflating = _Inflating(coding, raw, limit_bytes)
    if len(raw) <= _STEP_BYTES:
        inflating.step()
        if inflating.done:
            return inflating.body()
    return await offload.run(max(limit_bytes, len(raw)), inflating.rest)


class _Inflating:
    """One body, being inflated. A step reads only so much of it, because zlib copies what it was
    given and does not need yet.
    """

    def __init__(self, coding: str, raw: bytes, limit_bytes: int) -> None:
        if coding == "gzip":
            self._wbits = _GZIP
        else:
            # The first octet of RFC 1950 states the method, 8, in its lower half.
            self._wbits = zlib.MAX_WBITS if raw[0] & 15 == 8 else -zlib.MAX_WBITS
        self._raw = memoryview(raw)
        self._at = 0
        self._limit_bytes = limit_bytes
        self._produced: list[bytes] = []
        self._produced_bytes = 0
        self._inflater = zlib.decompressobj(self._wbits)
        self._members = 1
        self.done = False
        """Whether it is inflated to its end."""

    def step(self) -> None:
        """Go on by one step. Raises `BodyTooBigError` or `CorruptBodyError`."""
        given = self._raw[self._at : self._at + _STEP_BYTES]
        inflater = self._inflater
        try:
            produced = inflater.decompress(given, _STEP_BYTES)
        except zlib.error:
            raise CorruptBodyError from None
        left = len(inflater.unused_data) if inflater.eof else len(inflater.unconsumed_tail)
        self._at += len(given) - left
        if produced:
            self._produced.append(produced)
            self._produced_bytes += len(produced)
            if self._produced_bytes > self._limit_bytes:
                raise BodyTooBigError
        if inflater.eof:
            self._next_member()
        elif self._at == len(self._raw) and len(produced) < _STEP_BYTES:
            raise CorruptBodyError  # it is cut off

    def rest(self) -> bytes:
        """Go on to the end, and return the body. Raises as `step` does."""
        while not self.done:
            self.step()
        return self.body()

    def body(self) -> bytes:
        """The inflated body."""
        return b"".join(self._produced)

    def _next_member(self) -> None:
        if self._at == len(self._raw):
            self.done = True
            return
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise CorruptBodyError
        self._inflater = zlib.decompressobj(self._wbits)
