"""XML of hostile peers is refused before it costs anything."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from lxml import etree

from instep_soap.xml import XmlError, XmlLimits, read_qname, read_xml

BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "ha">'
    + b"".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">'.encode() for n in range(1, 12))
    + b"]><a>&a11;</a>"
)
LIMITS = XmlLimits(max_depth=8, max_elements=100)


@pytest.mark.parametrize(
    "raw",
    [
        BOMB,
        b"\xef\xbb\xbf" + BOMB,
        b"<!-- first --><!DOCTYPE a><a/>",
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]><a b="&x;"/>',
        BOMB.decode().replace('version="1.0"', 'version="1.0" encoding="UTF-16"').encode("utf-16"),
    ],
    ids=["bomb", "with a mark", "after a comment", "file", "attribute", "utf-16"],
)
def test_a_document_type_is_refused_before_it_is_read(raw: bytes) -> None:
    with pytest.raises(XmlError, match="document type"):
        read_xml(raw, LIMITS)


def test_a_document_type_in_another_encoding_is_refused_too() -> None:
    raw = '<?xml version="1.0" encoding="IBM037"?><!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'
    with pytest.raises(XmlError):
        read_xml(raw.encode("cp037"), LIMITS)


def test_a_text_about_document_types_is_no_document_type() -> None:
    root = read_xml(b"<a><![CDATA[<!DOCTYPE html>]]></a>", LIMITS)
    assert root.text == "<!DOCTYPE html>"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no XML"),
        (b"<a>", "no XML"),
        (b"\x00\x01\x02", "no XML"),
        (b"<a:b/>", "no XML"),
        (b"<a>&nbsp;</a>", "no XML"),
        (b"<a>" * 9 + b"</a>" * 9, "within each other"),
        (b"<a>" + b"<b/>" * 100 + b"</a>", "elements"),
        (b"<a>" * 100_000, "elements"),
    ],
)
def test_what_is_no_xml_or_too_much_of_it(raw: bytes, why: str) -> None:
    with pytest.raises(XmlError, match=why):
        read_xml(raw, LIMITS)


def test_the_limits_themselves_are_allowed() -> None:
    read_xml(b"<a>" * 8 + b"</a>" * 8, LIMITS)
    read_xml(b"<a>" + b"<b/>" * 99 + b"</a>", LIMITS)


def test_comments_and_instructions_are_left_out() -> None:
    root = read_xml(b"<?x y?><a>1<!-- c -->2<?p i?>3</a>", LIMITS)
    assert root.text == "123"
    assert len(root) == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"n:Code", "{urn:n}Code"),
        (b" n:Code\n", "{urn:n}Code"),
        (b"Code", "{urn:default}Code"),
    ],
)
def test_a_name_in_a_text_is_resolved_where_it_stands(text: bytes, name: str) -> None:
    raw = b'<a xmlns="urn:default" xmlns:n="urn:outer"><b xmlns:n="urn:n">' + text + b"</b></a>"
    assert read_qname(read_xml(raw, LIMITS)[0]) == name


@pytest.mark.parametrize("text", [b"", b"x:Code", b"n:", b"two words"])
def test_a_text_that_is_no_name(text: bytes) -> None:
    with pytest.raises(XmlError):
        read_qname(read_xml(b'<a xmlns:n="urn:n">' + text + b"</a>", LIMITS))


HIDING = ["<!-- </a><a> -->", "<?p </a><a> ?>", "<![CDATA[</</</]]>"]
PARTS = st.sampled_from(["<a>", "</a>", "<b/>", "<b c='>'/>", "<b c='/>'/>", "x", *HIDING])


@given(st.lists(PARTS, max_size=12), st.integers(1, 4), st.integers(1, 6))
def test_the_bounds_hold_whatever_is_counted_first(
    parts: list[str], max_depth: int, max_elements: int
) -> None:
    """That there are few tags is only a reason not to look closer."""
    raw = f"<r>{''.join(parts)}</r>".encode()
    try:
        plain = etree.fromstring(raw)
    except etree.XMLSyntaxError:
        return
    elements = list(plain.iter("*"))
    depth = max(1 + sum(1 for _ in element.iterancestors()) for element in elements)
    fits = depth <= max_depth and len(elements) <= max_elements
    try:
        read_xml(raw, XmlLimits(max_depth=max_depth, max_elements=max_elements))
    except XmlError:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize("encoding", ["utf-7", "utf-16", "utf-32", "cp037"])
def test_the_bounds_hold_in_any_encoding(encoding: str) -> None:
    raw = f'<?xml version="1.0" encoding="{encoding}"?>{"<a>" * 9}{"</a>" * 9}'
    with pytest.raises(XmlError):
        read_xml(raw.encode(encoding), LIMITS)
    with pytest.raises(XmlError):
        read_xml(raw.encode(encoding).replace(b"<a>", b"+ADw-a+AD4-"), LIMITS)
