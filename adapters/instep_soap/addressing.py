"""WS-Addressing: who sends a message, what it asks for, and where the reply goes.

Both versions are read, 2004/08 and 2005/08; a reply is written in the version of its request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from lxml.etree import SubElement, _Element, tostring

from instep_soap.errors import FaultCode, SoapFaultError
from instep_soap.names import ANY_WSA, WSA_2005, WsaVersion, local_name, namespace_of

__all__ = [
    "Addressing",
    "EndpointReference",
    "read_addressing",
    "read_reference",
    "with_message_id",
    "write_addressing",
    "write_reference",
]

_REFERENCES: Final = ("ReplyTo", "FaultTo", "From")
_TEXTS: Final = ("To", "Action", "MessageID", "RelatesTo")
_HEADERS: Final = {
    version.name(local): (version, local)
    for version in ANY_WSA.values()
    for local in (*_TEXTS, *_REFERENCES)
}
_MAX_CHARS: Final = 2_048
_MAX_PARAMETERS_CHARS: Final = 8_192


class EndpointReference(msgspec.Struct, frozen=True):
    """An address, with the elements that its owner wants back in each message to it."""

    version: WsaVersion
    address: str
    parameters: tuple[str, ...] = ()
    """These elements, each as XML. An element of ours would keep the names that a peer chose: see
    `instep_soap.vocabulary`.
    """

    @property
    def anonymous(self) -> bool:
        """Whether it means the response of the same exchange."""
        return self.address in {"", *(version.anonymous for version in ANY_WSA.values())}

    @property
    def none(self) -> bool:
        """Whether what is sent to it is to be discarded."""
        return self.address == WSA_2005.none


class Addressing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The headers of one message."""

    version: WsaVersion = WSA_2005
    stated: bool = False
    """Whether the message has any of these headers."""
    to: str = ""
    action: str = ""
    message_id: str = ""
    relates_to: str = ""
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None


def read_addressing(headers: Iterable[_Element]) -> Addressing:
    """Read the headers; they may be in any order, and any may be missing.

    Raises `SoapFaultError`: two versions in one message, a header twice, or one that is too long.
    """
    texts: dict[str, str] = {}
    references: dict[str, EndpointReference] = {}
    version: WsaVersion | None = None
    for block in headers:
        known = _HEADERS.get(str(block.tag))
        if known is None:
            continue
        found, local = known
        if version not in (None, found):
            raise _invalid(found, "headers of two versions of WS-Addressing")
        version = found
        if local in _REFERENCES:
            if local in references:
                raise _invalid(found, f"{local} is there twice")
            references[local] = read_reference(block, found)
            continue
        text = _short(block, found)
        if local == "RelatesTo":
            # There may be several, of different relationships; the reply is the one without a type.
            texts.setdefault(local, text)
        elif local in texts:
            raise _invalid(found, f"{local} is there twice")
        else:
            texts[local] = text
    return Addressing(
        version=version or WSA_2005,
        stated=version is not None,
        to=texts.get("To", ""),
        action=texts.get("Action", ""),
        message_id=texts.get("MessageID", ""),
        relates_to=texts.get("RelatesTo", ""),
        reply_to=references.get("ReplyTo"),
        fault_to=references.get("FaultTo"),
    )


def with_message_id(addressing: Addressing, message_id: str) -> Addressing:
    """The same headers of another message; `msgspec.structs.replace` takes five times as long."""
    return Addressing(
        version=addressing.version,
        stated=addressing.stated,
        to=addressing.to,
        action=addressing.action,
        message_id=message_id,
        relates_to=addressing.relates_to,
        reply_to=addressing.reply_to,
        fault_to=addressing.fault_to,
    )


def read_reference(element: _Element, version: WsaVersion | None = None) -> EndpointReference:
    """Read an endpoint reference of any version. Without an address it is anonymous.

    Raises `SoapFaultError`: its address is too long, or its parameters are.
    """
    address, parameters = "", list[str]()
    for child in element:
        found = ANY_WSA.get(namespace_of(str(child.tag)))
        if found is None:
            continue
        version = version or found
        local = local_name(str(child.tag))
        if local == "Address":
            address = _short(child, found)
        elif local in ("ReferenceParameters", "ReferenceProperties"):
            parameters += (_parameter(one, found) for one in child)
    version = version or WSA_2005
    if sum(map(len, parameters)) > _MAX_PARAMETERS_CHARS:
        limit = f"{_MAX_PARAMETERS_CHARS:,}"
        raise _invalid(version, f"reference parameters of more than {limit} letters")
    return EndpointReference(version, address, tuple(parameters))


def write_reference(parent: _Element, name: str, reference: EndpointReference) -> _Element:
    """Append an address of ours under this name, in the version of the reference."""
    element = SubElement(parent, name)
    version = reference.version
    SubElement(element, version.name("Address")).text = reference.address or version.anonymous
    return element


def write_addressing(
    header: _Element,
    version: WsaVersion,
    must_understand: tuple[str, str],
    *,
    action: str,
    relates_to: str = "",
    message_id: str = "",
    to: EndpointReference | None = None,
    reply_to: EndpointReference | None = None,
) -> None:
    """Append the headers of a message that we send, without the parameters of `to`."""
    if to is not None and not to.anonymous:
        SubElement(header, version.name("To")).text = to.address
    written = SubElement(header, version.name("Action"), {must_understand[0]: must_understand[1]})
    written.text = action
    if message_id:
        SubElement(header, version.name("MessageID")).text = message_id
    if relates_to:
        SubElement(header, version.name("RelatesTo")).text = relates_to
    if reply_to is not None:
        write_reference(header, version.name("ReplyTo"), reply_to)


def _parameter(element: _Element, version: WsaVersion) -> str:
    """A reference parameter as the header block that goes back (WS-Addressing 1.0 SOAP Binding,
    3.3).
    """
    if version is WSA_2005:
        element.set(version.name("IsReferenceParameter"), "true")
    return tostring(element, with_tail=False).decode()


def _short(element: _Element, version: WsaVersion) -> str:
    text = (element.text or "").strip()
    if len(text) > _MAX_CHARS:
        raise _invalid(version, f"{local_name(str(element.tag))} of more than {_MAX_CHARS} letters")
    return text


def _invalid(version: WsaVersion, reason: str) -> SoapFaultError:
    local = "InvalidAddressingHeader" if version is WSA_2005 else "InvalidMessageInformationHeader"
    return SoapFaultError(FaultCode.SENDER, reason, subcode=version.name(local))
