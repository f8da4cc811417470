"""Names of hostile peers do not stay in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from lxml.etree import _Element

from instep_soap import (
    SOAP12,
    WSA_2005,
    XmlLimits,
    new_envelope,
    read_envelope,
    read_xml,
    xml_bytes,
)
from instep_soap.addressing import read_addressing
from instep_soap.vocabulary import Vocabulary
from instep_soap.xml import _LOCAL


def where(vocabulary: Vocabulary, raw: bytes) -> str:
    """Whether a document is parsed here or apart."""
    thread = vocabulary.parse(raw, lambda _: threading.get_ident())
    return "here" if thread == threading.get_ident() else "apart"


def test_known_tags_are_parsed_here_and_new_ones_apart_when_there_is_no_room() -> None:
    vocabulary = Vocabulary(max_tags=4)
    assert where(vocabulary, b"<a><b/></a>") == "here"
    assert where(vocabulary, b"<a><c/></a>") == "here"
    assert where(vocabulary, b"<a><d/></a>") == "apart"
    assert where(vocabulary, b"<a><b/>text<c/></a>") == "here"


def test_the_room_is_bounded_in_bytes_too() -> None:
    vocabulary = Vocabulary(max_bytes=100)
    assert where(vocabulary, b"<a/>") == "here"
    assert where(vocabulary, b"<" + b"b" * 200 + b"/>") == "apart"


@pytest.mark.parametrize(
    "raw",
    [
        b"<a n1='1'/>",
        b"<a>&n1;</a>",
        b"<a xmlns:n1='urn:x'/>",
        b"<a xmlns='urn:n1'/>",
        b"<a b='>' n1=''/>",
        b"<a b=\">\" '><n1 c='/>",
        b"<!-- ' --><n1/><!-- ' -->",
        b"<?n1 x?><a/>",
        b"<a>\t \n\t</a>",
        "<a><n1/></a>".encode("utf-16"),
        b"<?xml version='1.0' encoding='cp037'?><a/>",
    ],
)
def test_whatever_may_be_remembered_counts_as_new(raw: bytes) -> None:
    vocabulary = Vocabulary(max_tags=4)
    for known in (b"<a>", b"</a>", b"<a/>", b"<b/>"):
        assert where(vocabulary, known) == "here"
    assert where(vocabulary, raw) == "apart"


@pytest.mark.parametrize(
    "raw",
    [
        b"<a><n1 c='1' d:e=\"x y\"/></a>",
        b"<a><n1 c = '' \n d:e='>'/></a>",
    ],
)
def test_the_value_of_an_attribute_does_not_count(raw: bytes) -> None:
    vocabulary = Vocabulary(max_tags=4)
    assert where(vocabulary, b"<a><n1 c='4' d:e='5'/><n1 c = '4' \n d:e='5'/></a>") == "here"
    assert where(vocabulary, raw) == "here"


@pytest.mark.parametrize(
    "raw",
    [
        b"<n1 xmlns:c='urn:new' d='2'/>",
        b"<n1 xmlns = 'urn:new' d='2'/>",
        b"<n1 d='2'\nxmlns:c\t=\n'urn:new'/>",
        b"<n1 d='xmlns'/><n1 xmlns:c='urn:new'/>",
        b"<n1>='</n1><n2 d='2'/>",
        b"<n1 e='2'/>",
        b"<n1 d='<n2/>'/>",
        b"<n1 d '<n2/>'/>",
        b"<!-- d='2' --><n1/><!-- d='2' -->",
        b"<![CDATA[ d='2' ]]>",
    ],
)
def test_a_value_counts_where_it_may_be_something_else(raw: bytes) -> None:
    vocabulary = Vocabulary(max_tags=2)
    for known in (b"<n1 d='1'/>", b"<n1/>"):
        assert where(vocabulary, known) == "here"
    assert where(vocabulary, raw) == "apart"


def test_the_time_is_linear_in_what_looks_like_a_declaration_or_a_value() -> None:
    vocabulary = Vocabulary()
    for part in (b"xmlns:", b" xmlns:", b" xmlns ", b"='", b"=\"'", b"= "):
        raw = b"<a " + part * 200_000
        assert where(vocabulary, raw) == "here"


def test_an_error_apart_is_raised_here() -> None:
    def fail(_: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Vocabulary(max_tags=0).parse(b"<a/>", fail)


def test_the_memory_stays_flat_whatever_names_come() -> None:
    def names(part: int) -> bytes:
        made = b"".join(b"<n%d_%d_%s/>" % (part, one, b"x" * 60) for one in range(5_000))
        return b"<a>" + made + b"</a>"

    kept: list[_Element] = []
    for part in range(20):
        kept = [read_xml(names(part), XmlLimits())]
    before = resident_bytes()
    for part in range(20, 120):
        kept = [read_xml(names(part), XmlLimits())]
    # These are 40 MB of names, which would stay.
    assert resident_bytes() - before < 20_000_000
    assert str(kept[0][0].tag).startswith("n119_0_")


def test_the_memory_stays_flat_whatever_values_come() -> None:
    """They are not interned, however short or long, so they need not count."""

    def values(part: int) -> bytes:
        made = [
            b"<b c='%d' d='%d.%s' xml:e='%d'/>" % (n, n, b"x" * (n % 90), n)
            for n in range(part * 5_000, (part + 1) * 5_000)
        ]
        return b"<a>" + b"".join(made) + b"</a>"

    for part in range(20):
        read_xml(values(part), XmlLimits())
    before = resident_bytes()
    for part in range(20, 140):
        assert where(_LOCAL.vocabulary, values(part)) == "here"
        read_xml(values(part), XmlLimits())
    # These are 40 MB of values.
    assert resident_bytes() - before < 20_000_000


def test_names_that_a_peer_wants_back_do_not_stay() -> None:
    before, raw = 0, b""

    def reply(part: int) -> bytes:
        names = "".join(f"<n{part}_{one}_{'x' * 40}/>" for one in range(120))
        raw = (
            f"<s:Envelope xmlns:s='{SOAP12.namespace}' xmlns:a='{WSA_2005.namespace}'><s:Header>"
            f"<a:ReplyTo><a:Address>http://peer/</a:Address><a:ReferenceParameters><k>{names}</k>"
            "</a:ReferenceParameters></a:ReplyTo></s:Header><s:Body/></s:Envelope>"
        )
        to = read_addressing(read_envelope(raw.encode()).headers).reply_to
        assert to is not None
        return xml_bytes(new_envelope(SOAP12, WSA_2005, "urn:do", to=to)[0], to=to)

    for part in range(7_000):
        if part == 1_000:
            before = resident_bytes()
        raw = reply(part)
    # These are 36 MB of names, and what libxml2 needs for each.
    assert resident_bytes() - before < 20_000_000
    assert raw.count(b"<n6999_") == 120


def resident_bytes() -> int:
    path = Path("/proc/self/statm")
    if not path.exists():
        pytest.skip("the memory of a process is read from /proc")
    return int(path.read_text().split()[1]) * 4096
