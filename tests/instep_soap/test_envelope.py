"""Envelopes and their addressing: read liberally, written as the specifications say."""

from __future__ import annotations

import pytest
from lxml import etree
from lxml.etree import Element, SubElement

from instep_soap import (
    SOAP11,
    SOAP12,
    WSA_2004,
    WSA_2005,
    EndpointReference,
    FaultCode,
    SoapFaultError,
    SoapVersion,
    WsaVersion,
    check_understood,
    fault_of,
    new_envelope,
    read_envelope,
    xml_bytes,
)
from instep_soap.addressing import read_addressing, read_reference
from instep_soap.envelope import fault_envelope

S11 = "http://schemas.xmlsoap.org/soap/envelope/"
S12 = "http://www.w3.org/2003/05/soap-envelope"
BOTH = [(SOAP11, S11), (SOAP12, S12)]


def envelope(space: str, headers: str = "", body: str = "<x xmlns='urn:x'/>") -> bytes:
    return (
        f'<e:Envelope xmlns:e="{space}" xmlns:a4="{WSA_2004.namespace}" '
        f'xmlns:a5="{WSA_2005.namespace}"><e:Header>{headers}</e:Header>'
        f"<e:Body>{body}</e:Body></e:Envelope>"
    ).encode()


@pytest.mark.parametrize(("version", "space"), BOTH)
def test_both_versions_are_read(version: SoapVersion, space: str) -> None:
    read = read_envelope(envelope(space, "<a5:To>urn:me</a5:To>"))
    assert read.version is version
    assert [block.tag for block in read.headers] == [WSA_2005.name("To")]
    assert read.body[0].tag == "{urn:x}x"


def test_the_content_of_a_body_keeps_the_prefixes_that_its_texts_use() -> None:
    raw = envelope(S12, body='<x xmlns="urn:x" xmlns:q="urn:q"><y>q:name</y></x>')
    content = etree.fromstring(read_envelope(raw).content())
    assert content[0].nsmap["q"] == "urn:q"
    assert read_envelope(envelope(S12, body="")).content() == b""


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"<Envelope/>", FaultCode.VERSION_MISMATCH),
        (envelope("urn:soap-13"), FaultCode.VERSION_MISMATCH),
        (f'<e:Envelope xmlns:e="{S12}"/>'.encode(), FaultCode.SENDER),
        (b"no xml", FaultCode.SENDER),
        (envelope(S12, "<h xmlns='urn:h'/>" * 129), FaultCode.SENDER),
        (envelope(S11, "<h xmlns='urn:h'/>" * 10_000), FaultCode.SENDER),
    ],
)
def test_what_is_no_envelope(raw: bytes, code: FaultCode) -> None:
    with pytest.raises(SoapFaultError) as caught:
        read_envelope(raw)
    assert caught.value.fault_code is code


@pytest.mark.parametrize(
    ("space", "attribute", "refused"),
    [
        (S12, 'e:mustUnderstand="true"', True),
        (S12, 'e:mustUnderstand="1"', True),
        (S12, 'e:mustUnderstand="false"', False),
        (S11, 'e:mustUnderstand="1"', True),
        (S11, "", False),
        (S12, f'e:mustUnderstand="1" e:role="{S12}/role/next"', True),
        (S12, 'e:mustUnderstand="1" e:role="urn:somebody"', False),
        (S11, 'e:mustUnderstand="1" e:actor="urn:somebody"', False),
        (S11, 'e:mustUnderstand="1" e:actor="http://schemas.xmlsoap.org/soap/actor/next"', True),
    ],
)
def test_a_header_that_must_be_understood(space: str, attribute: str, refused: bool) -> None:
    raw = envelope(space, f'<h:Security xmlns:h="urn:h" {attribute}/>')
    read = read_envelope(raw)
    check_understood(read, lambda name: name == "{urn:h}Security")
    if not refused:
        check_understood(read, lambda _: False)
        return
    with pytest.raises(SoapFaultError) as caught:
        check_understood(read, lambda _: False)
    assert caught.value.not_understood == ["{urn:h}Security"]


@pytest.mark.parametrize(("prefix", "version"), [("a4", WSA_2004), ("a5", WSA_2005)])
def test_both_versions_of_addressing_are_read(prefix: str, version: WsaVersion) -> None:
    parameters = "ReferenceProperties" if version is WSA_2004 else "ReferenceParameters"
    headers = (
        f"<{prefix}:Action> urn:do </{prefix}:Action><{prefix}:MessageID>urn:1</{prefix}:MessageID>"
        f"<{prefix}:ReplyTo><{prefix}:Address>http://me/</{prefix}:Address>"
        f"<{prefix}:{parameters}><k xmlns='urn:k'>7</k></{prefix}:{parameters}></{prefix}:ReplyTo>"
    )
    read = read_addressing(read_envelope(envelope(S12, headers)).headers)
    assert (read.version, read.action, read.message_id) == (version, "urn:do", "urn:1")
    assert read.reply_to is not None
    assert read.reply_to.address == "http://me/"
    assert [etree.fromstring(one).text for one in read.reply_to.parameters] == ["7"]
    assert not read.reply_to.anonymous


@pytest.mark.parametrize(
    "headers",
    [
        "<a4:Action>urn:a</a4:Action><a5:To>urn:b</a5:To>",
        "<a5:Action>urn:a</a5:Action><a5:Action>urn:b</a5:Action>",
        f"<a5:Action>{'x' * 3_000}</a5:Action>",
        "<a5:ReplyTo/><a5:ReplyTo/>",
        f"<a5:From><a5:ReferenceParameters><k>{'x' * 9_000}</k></a5:ReferenceParameters></a5:From>",
    ],
)
def test_headers_of_addressing_that_contradict_each_other(headers: str) -> None:
    with pytest.raises(SoapFaultError):
        read_addressing(read_envelope(envelope(S12, headers)).headers)


@pytest.mark.parametrize("address", ["", WSA_2004.anonymous, WSA_2005.anonymous])
def test_an_anonymous_address(address: str) -> None:
    assert EndpointReference(WSA_2005, address).anonymous


@pytest.mark.parametrize("version", [SOAP11, SOAP12])
@pytest.mark.parametrize("wsa", [WSA_2004, WSA_2005])
def test_an_envelope_that_is_written_is_read_again(version: SoapVersion, wsa: WsaVersion) -> None:
    stated = SubElement(Element("x"), wsa.name("ReplyTo"))
    SubElement(stated, wsa.name("Address")).text = "http://peer/"
    kept = SubElement(SubElement(stated, wsa.name("ReferenceParameters")), "{urn:k}k")
    kept.text = "7 < 8"
    to = read_reference(stated)
    root, _, body = new_envelope(version, wsa, "urn:do", relates_to="urn:1", to=to)
    SubElement(body, "{urn:x}x")
    read = read_envelope(xml_bytes(root, to=to))
    addressing = read_addressing(read.headers)
    assert read.version is version
    assert (addressing.version, addressing.action, addressing.to, addressing.relates_to) == (
        wsa,
        "urn:do",
        "http://peer/",
        "urn:1",
    )
    (returned,) = (block for block in read.headers if block.tag == "{urn:k}k")
    assert returned.text == "7 < 8"
    flag = returned.get(wsa.name("IsReferenceParameter"))
    assert flag == ("true" if wsa is WSA_2005 else None)


def test_a_content_keeps_the_prefixes_that_its_texts_use() -> None:
    root, _, _ = new_envelope(SOAP12, WSA_2005, "urn:do")
    content = etree.fromstring(f'<x xmlns="urn:x" xmlns:w="{WSA_2005.namespace}">w:To</x>')
    read = read_envelope(xml_bytes(root, content))
    assert read.body[0].nsmap["w"] == WSA_2005.namespace
    assert read.body[0].text == "w:To"


@pytest.mark.parametrize("version", [SOAP11, SOAP12])
@pytest.mark.parametrize("code", [FaultCode.SENDER, FaultCode.RECEIVER])
def test_a_fault_has_the_shape_of_its_version(version: SoapVersion, code: FaultCode) -> None:
    detail = Element("{urn:p}What")
    detail.text = "it"
    fault = SoapFaultError(code, "no", subcode="{urn:p}Wrong", detail=[detail])
    root = fault_envelope(fault, version, WSA_2005, relates_to="urn:1")
    (written,) = root.iter(version.name("Fault"))
    names = {"s": version.namespace}
    if version is SOAP12:
        assert written.findtext("s:Code/s:Value", None, names) == f"s:{code}"
        assert written.findtext("s:Code/s:Subcode/s:Value", None, names) == "f:Wrong"
        assert written.findtext("s:Reason/s:Text", None, names) == "no"
        assert written.findtext("s:Detail/{urn:p}What", None, names) == "it"
    else:
        assert written.findtext("faultcode") == "f:Wrong"
        assert written.findtext("faultstring") == "no"
        assert written.findtext("detail/{urn:p}What") == "it"
    read = fault_of(read_envelope(xml_bytes(root)))
    assert read is not None
    assert (read.subcode, read.message) == ("{urn:p}Wrong", "no")


def test_a_fault_without_a_subcode() -> None:
    fault = SoapFaultError(FaultCode.RECEIVER, "busy")
    read = fault_of(read_envelope(xml_bytes(fault_envelope(fault, SOAP11, WSA_2005))))
    assert read is not None
    assert (read.fault_code, read.subcode) == (FaultCode.RECEIVER, "")


def test_a_header_that_is_not_understood_is_named() -> None:
    fault = SoapFaultError(FaultCode.MUST_UNDERSTAND, "no", not_understood=["{urn:h}H", "plain"])
    root = fault_envelope(fault, SOAP12, WSA_2005)
    first, second = root.iter(SOAP12.name("NotUnderstood"))
    prefix, _, local = str(first.get("qname")).partition(":")
    assert (first.nsmap[prefix], local) == ("urn:h", "H")
    assert second.get("qname") == "plain"


@pytest.mark.parametrize("version", [SOAP11, SOAP12])
def test_another_version_is_answered_with_those_that_are_read(version: SoapVersion) -> None:
    fault = SoapFaultError(FaultCode.VERSION_MISMATCH, "no")
    root = fault_envelope(fault, version, WSA_2005)
    assert root.tag == version.name("Envelope")
    offered = list(root.iter(SOAP12.name("SupportedEnvelope")))
    assert [one.nsmap["e"] for one in offered] == [S12, S11]


def test_a_response_without_a_fault() -> None:
    assert fault_of(read_envelope(envelope(S12))) is None
