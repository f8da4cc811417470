"""What a POST carries: the document of an envelope in UTF-8, and what came with it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from urllib.parse import unquote
from zlib import crc32

import msgspec
from lxml.etree import _Element

from instep.model.messages import Attachment
from instep_soap.charset import as_utf8
from instep_soap.envelope import Envelope
from instep_soap.errors import FaultCode, SoapFaultError, UnknownCharsetError, XmlError
from instep_soap.media_type import UNKNOWN, MediaType, read_media_type
from instep_soap.multipart import PackageError, read_package
from instep_soap.names import ANY_SOAP, SOAP11, SOAP12, SoapVersion

__all__ = [
    "Content",
    "body_and_digest",
    "check_included",
    "read_content",
    "stated_version",
    "with_headers",
]

_PACKAGE: Final = "multipart/related"
_XOP: Final = "application/xop+xml"
_INCLUDE: Final = "{http://www.w3.org/2004/08/xop/include}Include"
_DIGEST_BYTES: Final = 16
_FIRST_BYTES: Final = 64
_LOOKED_AT_BYTES: Final = 2_048
_UNDERSTOOD: Final = f"{SOAP11.media_type}, {SOAP12.media_type} or {_PACKAGE}"
_QUOTED_CHARS: Final = 100


class Content(msgspec.Struct, frozen=True):
    """What a POST carries."""

    document: bytes
    """The envelope, in UTF-8; see `as_utf8`."""
    attachments: tuple[Attachment, ...] = ()
    includes: bool = False
    """Whether elements of the document are in attachments (XOP)."""


def read_content(raw: bytes, content_type: str) -> Content:
    """Read the body of a POST. Raises `SoapFaultError`, with status 415 for what is not
    understood, and 400 for what is not as its Content-Type says.
    """
    media_type = read_media_type(content_type)
    attachments: tuple[Attachment, ...] = ()
    packed = media_type.essence == _PACKAGE
    if packed:
        try:
            package = read_package(raw, media_type)
        except PackageError as error:
            raise _refused(str(error), error.status) from None
        raw, attachments = package.root.content, package.attachments
        media_type = read_media_type(package.root.content_type)
    says_nothing = media_type.essence == UNKNOWN and b"<" not in raw[:_FIRST_BYTES]
    if says_nothing or not media_type.may_be_xml:
        what = f"the root part of {_PACKAGE}" if packed else "Content-Type"
        stated = media_type.essence[:_QUOTED_CHARS] or "nothing that can be read"
        raise _refused(f"{what} is {stated}: an envelope is sent as {_UNDERSTOOD}", 415)
    try:
        document = as_utf8(raw, media_type.charset)
    except UnknownCharsetError as error:
        raise _refused(error.message, 415) from None
    except XmlError as error:
        raise _refused(error.message, 400) from None
    return Content(document, attachments, packed and media_type.essence == _XOP)


def stated_version(raw: bytes, content_type: str) -> SoapVersion:
    """The version of SOAP to answer in while the envelope is not read: as the media type says, of
    the root part where it is in a package, else as the first bytes do.
    """
    media_type = read_media_type(content_type)
    for stated in (media_type.get("start-info"), media_type.get("type"), media_type.essence):
        version = _version_of(read_media_type(stated))
        if version is not None:
            return version
    head = raw[:_LOOKED_AT_BYTES].replace(b"\0", b"")
    found = [(head.find(one.namespace.encode()), one) for one in ANY_SOAP.values()]
    places = [(at, one) for at, one in found if at >= 0]
    return min(places, key=lambda place: place[0])[1] if places else SOAP12


def check_included(content: Content, envelope: Envelope) -> None:
    """Check that what an envelope includes came with it (XOP 3.2). Raises `SoapFaultError`."""
    if content.includes:
        names = {one.content_id for one in content.attachments} - {""}
        for element in _includes(envelope):
            if _name_of(element) not in names:
                raise _refused("xop:Include names a part that did not come", 400)


def with_headers(digest: bytes, headers: bytes) -> bytes:
    """The digest of a message, and behind it that of the headers that every copy repeats; see
    `MessageHeader.digest`.
    """
    return digest + crc32(headers).to_bytes(4)


def body_and_digest(
    envelope: Envelope, attachments: tuple[Attachment, ...] = ()
) -> tuple[bytes, bytes]:
    """The content of the body, see `Envelope.content`, and a digest of it and of the attachments.

    The digest is of what was sent, not of how: neither boundaries, transfer encodings and charsets
    change it, nor the names that a copy gives to the parts that it includes.
    """
    body = envelope.content()
    if not attachments:
        return body, blake2b(body, digest_size=_DIGEST_BYTES).digest()
    digests = [blake2b(one.content, digest_size=_DIGEST_BYTES).hexdigest() for one in attachments]
    by_name = {one.content_id: of for one, of in zip(attachments, digests, strict=True)}
    by_name.pop("", None)
    named = [(element, element.get("href", "")) for element in _includes(envelope)]
    included: set[str] = set()
    for element, _ in named:
        name = _name_of(element)
        if name in by_name:
            included.add(name)
            element.set("href", by_name[name])
    digest = blake2b(envelope.content(), digest_size=_DIGEST_BYTES)
    for element, href in named:
        element.set("href", href)
    for one, of in zip(attachments, digests, strict=True):
        if one.content_id not in included:
            digest.update(of.encode())
    return body, digest.digest()


def _includes(envelope: Envelope) -> list[_Element]:
    return [element for child in envelope.body for element in child.iter(_INCLUDE)]


def _name_of(include: _Element) -> str:
    """The Content-ID of what an `xop:Include` includes."""
    return unquote(include.get("href", "").strip().removeprefix("cid:"))


def _version_of(media_type: MediaType) -> SoapVersion | None:
    if media_type.essence == SOAP11.media_type:
        return SOAP11
    return SOAP12 if media_type.essence == SOAP12.media_type else None


def _refused(text: str, status: int) -> SoapFaultError:
    return SoapFaultError(FaultCode.SENDER, text, status=status)
