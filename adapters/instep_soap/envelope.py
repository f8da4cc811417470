"""SOAP envelopes of both versions: read liberally, written strictly."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec
from lxml import etree
from lxml.etree import Element, SubElement, _Element

from instep_soap.addressing import EndpointReference, write_addressing
from instep_soap.errors import FaultCode, SoapFaultError
from instep_soap.names import (
    ANY_SOAP,
    SOAP11,
    SOAP12,
    SoapVersion,
    WsaVersion,
    local_name,
    namespace_of,
)
from instep_soap.xml import XmlError, XmlLimits, first_children, read_qname, read_xml

__all__ = [
    "Envelope",
    "check_understood",
    "fault_envelope",
    "fault_of",
    "header_envelope",
    "new_envelope",
    "read_envelope",
    "xml_bytes",
    "xml_text",
    "xml_value",
]

_ENVELOPES: Final = {version.name("Envelope"): version for version in ANY_SOAP.values()}
_TRUE: Final = frozenset({"1", "true"})
_MAX_HEADERS: Final = 128
_IN_TEXT: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_IN_VALUE: Final = {**_IN_TEXT, **str.maketrans({'"': "&quot;", "\t": "&#9;", "\n": "&#10;"})}
_SPECIAL: Final = re.compile(r"""[&<>"\r\t\n]""")
"""What `_IN_TEXT` or `_IN_VALUE` replaces."""
_XML_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """An envelope that was received."""

    version: SoapVersion
    headers: list[_Element]
    body: list[_Element]
    """The child elements of the body."""

    def content(self) -> bytes:
        """The content of the body as a document: its first child, with every namespace that is
        declared around it; empty if there is none.
        """
        if not self.body:
            return b""
        return etree.tostring(self.body[0], encoding="UTF-8", with_tail=False)


def read_envelope(
    raw: bytes,
    limits: XmlLimits | None = None,
    *,
    max_headers: int = _MAX_HEADERS,
    apart: bool = False,
) -> Envelope:
    """Read an envelope of SOAP 1.1 or 1.2. `apart`: see `read_xml`.

    Raises `SoapFaultError`: no XML, no envelope of these versions, or too many header blocks.
    """
    try:
        root = read_xml(raw, limits or XmlLimits(), apart=apart)
    except XmlError as error:
        raise SoapFaultError(FaultCode.SENDER, error.message) from None
    version = _ENVELOPES.get(str(root.tag))
    if version is None:
        raise SoapFaultError(FaultCode.VERSION_MISMATCH, "an Envelope of SOAP 1.1 or 1.2 is needed")
    parts = first_children(root)
    header, body = parts.get(version.name("Header")), parts.get(version.name("Body"))
    if body is None:
        raise SoapFaultError(FaultCode.SENDER, "an Envelope has a Body")
    if header is not None and len(header) > max_headers:
        raise SoapFaultError(FaultCode.SENDER, f"more than {max_headers} header blocks")
    return Envelope(version, [] if header is None else list(header), list(body))


def check_understood(envelope: Envelope, understood: Callable[[str], bool]) -> None:
    """Check that every header block that must be understood is (SOAP 1.2 Part 1, 2.4; SOAP 1.1
    4.2.3). `understood` is asked with the name of a block.

    Raises `SoapFaultError`.
    """
    version = envelope.version
    must = version.name("mustUnderstand")
    unknown = [
        str(block.tag)
        for block in envelope.headers
        if (block.get(must) or "").strip() in _TRUE
        and (block.get(version.role) or "").strip() in version.for_us
        and not understood(str(block.tag))
    ]
    if unknown:
        raise SoapFaultError(
            FaultCode.MUST_UNDERSTAND,
            f"not understood: {', '.join(unknown)[:500]}",
            not_understood=unknown,
        )


def new_envelope(
    version: SoapVersion,
    wsa: WsaVersion | None,
    action: str = "",
    *,
    prefixes: dict[str, str] | None = None,
    relates_to: str = "",
    message_id: str = "",
    to: EndpointReference | None = None,
    reply_to: EndpointReference | None = None,
) -> tuple[_Element, _Element, _Element]:
    """An envelope to send; returns it, its Header and its Body. Without a `wsa` it has no
    addressing.

    `prefixes`: prefix → namespace, declared on the envelope.
    """
    addressing = {} if wsa is None else {"a": wsa.namespace}
    declared = {"s": version.namespace, **addressing, **(prefixes or {})}
    root = Element(version.name("Envelope"), nsmap=declared)
    header = SubElement(root, version.name("Header"))
    if wsa is not None:
        write_addressing(
            header,
            wsa,
            (version.name("mustUnderstand"), "1"),
            action=action,
            relates_to=relates_to,
            message_id=message_id,
            to=to,
            reply_to=reply_to,
        )
    return root, header, SubElement(root, version.name("Body"))


def header_envelope(
    version: SoapVersion,
    wsa: WsaVersion | None,
    block: str,
    *,
    prefix: str,
    namespace: str,
    action: str = "",
    relates_to: str = "",
) -> bytes:
    """An envelope for the response, of one header block that is XML already, with an empty Body.

    The bytes are those of `new_envelope` with the block appended and `xml_bytes`. Nearly every
    message is answered so: 9 µs for an acknowledgement of WS-RM that took 53 µs, 1.4 µs for a
    response of WS-Reliability that took 36 µs.
    """
    addressing = addressed = ""
    if wsa is not None:
        addressing = f' xmlns:a="{wsa.namespace}"'
        relation = f"<a:RelatesTo>{xml_text(relates_to)}</a:RelatesTo>" if relates_to else ""
        addressed = f'<a:Action s:mustUnderstand="1">{xml_text(action)}</a:Action>{relation}'
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        f'<s:Envelope xmlns:s="{version.namespace}"{addressing} xmlns:{prefix}="{namespace}">'
        f"<s:Header>{addressed}{block}</s:Header><s:Body/></s:Envelope>"
    ).encode()


def xml_text(text: str) -> str:
    """A text that came in an XML document, as the text of an element."""
    # Most texts need nothing, and `translate` looks each letter up.
    return text.translate(_IN_TEXT) if _SPECIAL.search(text) else text


def xml_value(text: str) -> str:
    """A text that came in an XML document, as the value of an attribute in double quotes."""
    return text.translate(_IN_VALUE) if _SPECIAL.search(text) else text


def fault_envelope(
    fault: SoapFaultError,
    version: SoapVersion,
    wsa: WsaVersion | None,
    *,
    relates_to: str = "",
    to: EndpointReference | None = None,
) -> _Element:
    """An envelope with a fault, in the shape of its version (SOAP 1.2 Part 1, 5.4; SOAP 1.1
    4.4). Without a `wsa` it has no addressing.
    """
    space = namespace_of(fault.subcode)
    # A block that is moved into the envelope keeps the prefix that its texts use only if the
    # envelope does not declare its namespace under another one.
    declared = {prefix or "f": uri for prefix, uri in _declared(fault.header_11).items()}
    addressing = "" if wsa is None else wsa.namespace
    if space not in ("", addressing, *declared.values()):
        declared["f"] = space
    root, header, body = new_envelope(
        version,
        wsa,
        fault.action or (wsa.fault_action if wsa is not None else ""),
        prefixes=declared,
        relates_to=relates_to,
        to=to,
    )
    if fault.fault_code is FaultCode.VERSION_MISMATCH:
        # In a fault of SOAP 1.1 too (SOAP 1.2 Part 1, appendix A).
        upgrade = SubElement(header, SOAP12.name("Upgrade"), nsmap={"u": SOAP12.namespace})
        for one in (SOAP12, SOAP11):
            offered = SubElement(
                upgrade, SOAP12.name("SupportedEnvelope"), nsmap={"e": one.namespace}
            )
            offered.set("qname", "e:Envelope")
    if version is SOAP12:
        _fault_12(fault, header, body)
    else:
        _fault_11(fault, header, body)
    return root


def fault_of(envelope: Envelope) -> SoapFaultError | None:
    """The fault that an envelope carries; None: it carries none."""
    version = envelope.version
    if not envelope.body or envelope.body[0].tag != version.name("Fault"):
        return None
    found = envelope.body[0]
    if version is SOAP12:
        codes = list(found.iter(version.name("Value")))
        reason = found.find(f"{version.name('Reason')}/{version.name('Text')}")
    else:
        codes = list(found.iter("faultcode"))
        for block in envelope.headers:
            codes += [one for one in block if local_name(str(one.tag)) == "FaultCode"]
        reason = found.find("faultstring")
    names = []
    for one in codes:
        try:
            names.append(read_qname(one))
        except XmlError:
            names.append((one.text or "").strip())
    ours = {version.sender: FaultCode.SENDER, version.receiver: FaultCode.RECEIVER}
    first = local_name(names[0]) if names else ""
    code = ours.get(first) or next((one for one in FaultCode if one == first), FaultCode.SENDER)
    subcode = names[-1] if names and namespace_of(names[-1]) != version.namespace else ""
    text = (reason.text or "") if reason is not None else ""
    return SoapFaultError(code, text, subcode=subcode)


def xml_bytes(
    root: _Element, content: _Element | None = None, *, to: EndpointReference | None = None
) -> bytes:
    """An envelope of `new_envelope` as bytes, in UTF-8.

    `to`: where it goes, if not into a response: its parameters become header blocks.
    `content`: an element of the application for its empty Body. It is written as it is: lxml would
    drop declarations that the envelope has, too, and a name in a text may need their prefix.
    """
    raw = etree.tostring(root, xml_declaration=True, encoding="UTF-8")
    if to is not None and to.parameters and not to.anonymous:
        before, end, after = raw.partition(b"</s:Header>")
        raw = b"".join((before, *(one.encode() for one in to.parameters), end, after))
    if content is None:
        return raw
    before, _, after = raw.rpartition(b"<s:Body/>")
    inner = etree.tostring(content, encoding="UTF-8", with_tail=False)
    return b"".join((before, b"<s:Body>", inner, b"</s:Body>", after))


def _fault_12(fault: SoapFaultError, header: _Element, body: _Element) -> None:
    name = SOAP12.name
    for place, unknown in enumerate(fault.not_understood):
        space = namespace_of(unknown)
        declared = {f"n{place}": space} if space else None
        block = SubElement(header, name("NotUnderstood"), nsmap=declared)
        block.set("qname", _prefixed(block, unknown))
    written = SubElement(body, name("Fault"))
    code = SubElement(written, name("Code"))
    SubElement(code, name("Value")).text = f"s:{fault.fault_code}"
    if fault.subcode:
        value = SubElement(SubElement(code, name("Subcode")), name("Value"))
        value.text = _prefixed(value, fault.subcode)
    text = SubElement(SubElement(written, name("Reason")), name("Text"))
    text.set(_XML_LANG, "en")
    text.text = fault.message
    if fault.detail:
        SubElement(written, name("Detail")).extend(fault.detail)


def _fault_11(fault: SoapFaultError, header: _Element, body: _Element) -> None:
    written = SubElement(body, SOAP11.name("Fault"))
    code = SubElement(written, "faultcode")
    if fault.subcode and fault.header_11 is None:
        code.text = _prefixed(code, fault.subcode)
    else:
        ours = {FaultCode.SENDER: SOAP11.sender, FaultCode.RECEIVER: SOAP11.receiver}
        code.text = f"s:{ours.get(fault.fault_code, fault.fault_code)}"
    SubElement(written, "faultstring").text = fault.message
    if fault.header_11 is not None:
        header.append(fault.header_11)
    elif fault.detail:
        SubElement(written, "detail").extend(fault.detail)


def _declared(block: _Element | None) -> dict[str | None, str]:
    return {} if block is None else dict(block.nsmap)


def _prefixed(element: _Element, name: str) -> str:
    """A name as the text of an element: with a prefix that is declared there."""
    space, local = namespace_of(name), local_name(name)
    prefixes = [prefix for prefix, declared in element.nsmap.items() if declared == space]
    return f"{prefixes[0]}:{local}" if prefixes and prefixes[0] else local
