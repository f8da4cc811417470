"""Attributes and namespaces are bounded too, before there is a tree, in any spelling."""

from __future__ import annotations

import codecs
from contextlib import suppress

import pytest
from lxml import etree

from instep_soap import XmlError, XmlLimits, read_xml
from instep_soap import xml as xml_module

LIMITS = XmlLimits()
MANY = range(300)
SOME = range(250)


def attributes(numbers: range, spelling: str = ' a{0}="v{0}"') -> str:
    return "".join(spelling.format(number) for number in numbers)


SPELLINGS = [
    ' a{0}="v{0}"',
    " a{0}='v{0}'",
    "\n\ta{0} = 'v{0}'",
    '\r\na{0}\n=\t"v>{0}"',
    ' xmlns:n{0}="u{0}"',
    "\nxmlns:n{0} =\n'u{0}'",
    " a{0}=\"'='\"",
    ' a{0}=""',
    ' é{0}="="',
]


@pytest.fixture
def no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree must not be made."""

    def fail(*_: object) -> None:
        raise AssertionError("a tree was made")

    monkeypatch.setattr(xml_module, "_parse", fail)


@pytest.mark.usefixtures("no_tree")
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize(
    "around", ["{}", "<?p ?><!-- <a> -->{}", "<w><![CDATA[<]]>{}</w>", "<w>x{}"]
)
def test_too_many_on_an_element(spelling: str, encoding: str, around: str) -> None:
    raw = around.format(f"<e{attributes(MANY, spelling)}/>").encode(encoding)
    with pytest.raises(XmlError, match="more than 256 attributes on an element"):
        read_xml(raw, LIMITS)


@pytest.mark.usefixtures("no_tree")
@pytest.mark.parametrize("end", ["", "<", "/", "<b/>", '"'])
def test_too_many_on_a_tag_that_has_no_end(end: str) -> None:
    with pytest.raises(XmlError, match="attributes"):
        read_xml(f"<e{attributes(MANY)}{end}".encode(), LIMITS)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_as_many_as_are_allowed(spelling: str) -> None:
    root = read_xml(f"<e{attributes(SOME, spelling)}/>".encode(), LIMITS)
    assert len(root.attrib) + len(root.nsmap) == len(SOME)


@pytest.mark.parametrize(
    "hidden",
    [
        "a=b\n" * 300,
        "<![CDATA[" + "a=b\n" * 300 + "]]>",
        "<![CDATA[<x" + attributes(MANY) + "/>]]>",
        "<!--" + "<x a='1' b='2'>=" * 300 + "-->",
        "<!-- <x" + attributes(MANY) + "/> -->",
        "<?p" + attributes(MANY) + "?>",
        "&lt;x" + attributes(MANY).replace('"', "&quot;") + "/&gt;",
        "&lt;x" + attributes(MANY) + "/>",
        "<b c='1'/>" * 300,
        "</b><b>".join(["<b>", *("=" for _ in MANY), "</b>"]),
    ],
)
def test_what_looks_like_attributes_is_none(hidden: str) -> None:
    raw = f'<e a="1">{hidden}</e>'.encode()
    assert etree.tostring(read_xml(raw, LIMITS), method="text") == etree.tostring(
        etree.fromstring(raw, etree.XMLParser(remove_comments=True)), method="text"
    )


@pytest.mark.usefixtures("no_tree")
def test_too_many_in_all() -> None:
    limits = XmlLimits(max_elements=100)
    with pytest.raises(XmlError, match="more than 400 attributes"):
        read_xml(f"<a>{f'<b{attributes(SOME)}/>' * 2}</a>".encode(), limits)


@pytest.mark.usefixtures("no_tree")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_too_many_elements(encoding: str) -> None:
    for elements in ("<b/>" * 101, "<b></b>" * 101, "<!--<--><b/>" * 101, "<!--" + "<b/>" * 101):
        with pytest.raises(XmlError, match="more than 100 elements"):
            read_xml(f"<a>{elements}</a>".encode(encoding), XmlLimits(max_elements=100))


@pytest.mark.usefixtures("no_tree")
@pytest.mark.parametrize("part", ["<!---->", "<![CDATA[<]]>", "<?p?>"])
def test_too_many_parts_that_hide_markup(part: str) -> None:
    raw = f"<a>{part * 100_001}</a>".encode()
    with pytest.raises(XmlError, match="more than 100,000 comments"):
        read_xml(raw, LIMITS)


def test_a_text_with_many_angles_has_few_elements() -> None:
    raw = b"<a><![CDATA[" + b"<b>" * 200 + b"]]><!--" + b"<c>" * 200 + b"--></a>"
    assert read_xml(raw, XmlLimits(max_elements=100)).tag == "a"


def test_namespaces_that_apply_to_an_element() -> None:
    def nested(levels: int) -> bytes:
        begin = (
            f"<e{attributes(range(n * 200, n * 200 + 200), SPELLINGS[4])}>" for n in range(levels)
        )
        return "".join([*begin, "</e>" * levels]).encode()

    assert len(read_xml(nested(5), LIMITS)[0][0][0][0].nsmap) == 1_000
    with pytest.raises(XmlError, match="more than 1,024 declarations of namespaces"):
        read_xml(nested(6), LIMITS)
    # Each element may declare its own.
    beside = b"<e>" + b'<e xmlns:a="u" a:b=""/>' * 5_000 + b"</e>"
    assert len(read_xml(beside, LIMITS)) == 5_000


def test_the_time_is_linear() -> None:
    """Each is as large as a body may be, nearly; a quadratic look at it would take minutes."""
    size = 1 << 20
    for part in (
        b"<a ",
        b"a='' ",
        b"<!--",
        b"<![CDATA[",
        b"<?",
        b"= ",
        b"<a b='",
        b'="',
        b"<a b=''>",
        b"<a/>",
        b"<!-->",
        b"<!---->",
        b"]]>",
        b"<a " + b"b='' " * 300,
        b"xmlns:a='' ",
        b"<" + b"=" * 300,
    ):
        for raw in (
            b"<r " + part * (size // len(part)),
            b"<r>" + part * (size // len(part)) + b"</r>",
        ):
            with suppress(XmlError):
                read_xml(raw, XmlLimits(max_elements=1_000))


def test_the_words_of_the_parser_are_kept_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "instep.soap"), pytest.raises(XmlError) as caught:
        read_xml(b"<a>&#0;</a>", LIMITS)
    assert caught.value.message == "no XML: it is not well-formed"
    assert "xmlParseCharRef" in caplog.text


def test_a_mark_alone_is_no_document() -> None:
    for raw in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b""):
        with pytest.raises(XmlError):
            read_xml(raw, LIMITS)
