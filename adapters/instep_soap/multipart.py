"""Envelopes in packages: multipart/related (RFC 2387), of XOP (MTOM) and SOAP with Attachments.

The root part is the envelope, and every other part is an attachment. The package is read by its
bytes, in linear time: Python's `email` is made for text, and changes the line ends of a part.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from instep.model.messages import Attachment
from instep_soap.media_type import MediaType

__all__ = ["Package", "PackageError", "read_package"]

_MAX_PARTS: Final = 128
_MAX_HEAD_BYTES: Final = 8_190
_MAX_BOUNDARY_CHARS: Final = 70
_MAX_PADDING_BYTES: Final = 256
_MAX_LOOKALIKES: Final = 4_096
"""Most lines that begin as a delimiter, and are none."""
_FOLDED: Final = re.compile(rb"\r?\n[ \t]++")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BLANKS: Final = b" \t\r\n"
_AS_IT_IS: Final = frozenset({"", "7bit", "8bit", "binary"})
_READ_HERE: Final = ("content-id", "content-type", "content-transfer-encoding", "content-length")


class PackageError(Exception):
    """A package that cannot be read, with a sentence for its sender."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status
        """The HTTP status: 415 for what is not understood, 400 for what is broken."""


class Package(msgspec.Struct, frozen=True):
    """What was in a package."""

    root: Attachment
    """The part that is the envelope."""
    attachments: tuple[Attachment, ...]
    """The others, in their order."""


def read_package(raw: bytes, media_type: MediaType) -> Package:
    """Read a package; `media_type` is its Content-Type. Raises `PackageError`."""
    boundary = media_type.get("boundary")
    if not 0 < len(boundary) <= _MAX_BOUNDARY_CHARS or not boundary.isascii():
        raise PackageError("multipart/related needs a boundary of 1 to 70 ASCII characters", 415)
    parts = [_part(one) for one in _split(raw, b"--" + boundary.encode())]
    if not parts:
        raise PackageError("multipart/related without a part: the envelope is the root part", 415)
    names = [part.content_id for part in parts if part.content_id]
    if len(set(names)) < len(names):
        raise PackageError("two parts have the same Content-ID")
    start, at = _unbracketed(media_type.get("start")), 0
    if start:
        places = [place for place, part in enumerate(parts) if part.content_id == start]
        if not places:
            raise PackageError("no part has the Content-ID that start names: no root part", 415)
        (at,) = places
    return Package(parts.pop(at), tuple(parts))


def _split(raw: bytes, delimiter: bytes) -> Iterator[bytes]:
    """The parts between the delimiter lines (RFC 2046 5.1.1), with their heads. What is before the
    first one and after the last one is left out. Lines may end with LF alone.
    """
    begin = -1
    parts = lookalikes = at = 0
    while (found := raw.find(delimiter, at)) >= 0:
        at = found + len(delimiter)
        closes = raw.startswith(b"--", at)
        line_end = raw.find(b"\n", at, at + _MAX_PADDING_BYTES)
        rest = raw[at + 2 * closes : line_end if line_end >= 0 else at + _MAX_PADDING_BYTES]
        at_line = found == 0 or raw[found - 1] == 0x0A
        ends = line_end >= 0 or (closes and len(raw) <= at + _MAX_PADDING_BYTES)
        if not at_line or not ends or rest.strip(_BLANKS):
            lookalikes += 1
            if lookalikes > _MAX_LOOKALIKES:
                raise PackageError("too many lines of the parts look like their boundary")
            continue
        if begin >= 0:
            parts += 1
            if parts > _MAX_PARTS:
                raise PackageError(f"more than {_MAX_PARTS} parts")
            # The line end before a delimiter belongs to it.
            end = found - 2 if raw[found - 2 : found] == b"\r\n" else found - 1
            yield raw[begin : max(begin, end)]
        if closes:
            return
        begin = line_end + 1
        at = line_end
    if begin >= 0:
        raise PackageError("the last part has no end: the boundary that closes them is missing")


def _part(raw: bytes) -> Attachment:
    """A part. Raises `PackageError`."""
    head, content = _head_and_content(raw)
    headers: dict[str, str] = {}
    for line in _FOLDED.sub(b" ", head).splitlines():
        text = line.decode(errors="replace")
        name, colon, value = text.partition(":")
        if not colon or not name.strip() or _CONTROL.search(text):
            raise PackageError("a line in the head of a part is no header")
        headers.setdefault(name.strip().lower(), value.strip())
    encoding = headers.get("content-transfer-encoding", "").lower()
    return Attachment(
        content_id=_unbracketed(headers.get("content-id", "")),
        content_type=headers.get("content-type", ""),
        content=_decoded(content, encoding),
        headers={name: value for name, value in headers.items() if name not in _READ_HERE},
    )


def _head_and_content(raw: bytes) -> tuple[bytes, bytes]:
    """A part, cut at the empty line after its head."""
    for empty in (b"\r\n", b"\n"):
        if raw.startswith(empty):
            return b"", raw[len(empty) :]
    ends = [
        (at, at + len(empty))
        for empty in (b"\r\n\r\n", b"\n\n")
        if (at := raw.find(empty, 0, _MAX_HEAD_BYTES)) >= 0
    ]
    if not ends:
        if len(raw) <= _MAX_HEAD_BYTES:
            raise PackageError("a part has no empty line after its head")
        raise PackageError(f"the head of a part is longer than {_MAX_HEAD_BYTES:,} bytes")
    end, begin = min(ends)
    return raw[:end], raw[begin:]


def _decoded(content: bytes, encoding: str) -> bytes:
    """The content of a part before its transfer encoding (RFC 2045 6). Raises `PackageError`."""
    if encoding in _AS_IT_IS:
        return content
    if encoding == "quoted-printable":
        return binascii.a2b_qp(content)
    if encoding != "base64":
        raise PackageError("a Content-Transfer-Encoding is none of RFC 2045", 415)
    try:
        return binascii.a2b_base64(content.translate(None, _BLANKS), strict_mode=True)
    except binascii.Error:
        raise PackageError("a part is not in base64, as its head says") from None


def _unbracketed(name: str) -> str:
    return name.strip().removeprefix("<").removesuffix(">")
