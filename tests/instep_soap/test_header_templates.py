"""What a template reads of a header is what the header says, whatever else a document holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep_soap import (
    HeaderReading,
    SoapFaultError,
    XmlLimits,
    read_envelope,
    with_message_id,
)
from instep_soap.addressing import read_addressing
from instep_soap.header_templates import HeaderTemplates
from tests.instep_soap.soap_kit import fresh_vocabulary
from tests.properties_kit import few

SOAP = "http://www.w3.org/2003/05/soap-envelope"
WSA = "http://www.w3.org/2005/08/addressing"
PROBES = {"MessageID>": "urn:probe", "Number>": "987654321"}


@pytest.fixture(autouse=True, scope="module")
def fresh() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fresh_vocabulary(monkeypatch)
        yield


Headers = tuple[int, tuple[object, ...]]
"""The number, and all else that the headers hold."""
Reading = HeaderReading[Headers]


def read(raw: bytes) -> Reading | None:
    try:
        envelope = read_envelope(raw)
        addressing = read_addressing(envelope.headers)
    except SoapFaultError:
        return None
    number: int | None = None
    rest: list[object] = []
    for block in envelope.headers:
        for one in block.iter():
            text = one.text or ""
            if one.tag == "{urn:r}Number" and number is None and text.isdigit():
                number, text = int(text), ""
            elif one.tag == f"{{{WSA}}}MessageID":
                text = ""
            rest.append((one.tag, tuple(one.attrib.items()), tuple(one.nsmap.items()), text))
    if number is None or not addressing.message_id:
        return None
    return HeaderReading(envelope.version, addressing, (number, tuple(rest)))


def vary(reading: Reading, texts: Sequence[str]) -> Reading | None:
    message_id, number = texts
    if not number.isdigit():
        return None
    addressing = with_message_id(reading.addressing, message_id)
    return HeaderReading(reading.version, addressing, (int(number), reading.headers[1]))


class Reader:
    """Reads by templates, and learns as an endpoint does; each is compared."""

    def __init__(self) -> None:
        self.templates = HeaderTemplates(PROBES, vary, read, XmlLimits())
        self.found = 0

    def read(self, raw: bytes) -> None:
        found, plain = self.templates.find(raw), read(raw)
        if found is not None:
            reading, envelope = found
            self.found += 1
            assert reading == plain
            assert envelope.content() == read_envelope(raw).content()
            assert len(envelope.body) == len(read_envelope(raw).body)
        elif plain is not None:
            self.templates.learn(raw, plain)


def document(
    headers: str, body: str = "<x/>", *, before: str = "", after: str = "<s:Body>", root: str = ""
) -> bytes:
    return (
        f'{before}<s:Envelope xmlns:s="{SOAP}" xmlns:a="{WSA}" xmlns:r="urn:r"{root}>'
        f"<s:Header>{headers}</s:Header>{after}{body}</s:Body></s:Envelope>"
    ).encode()


def usual(number: object, message_id: object = None, body: str = "<x/>") -> bytes:
    name = f"urn:{number}" if message_id is None else message_id
    return document(f"<a:MessageID>{name}</a:MessageID><r:Number>{number}</r:Number>", body)


def test_the_third_of_a_kind_is_read_by_a_template() -> None:
    reader = Reader()
    for number in range(1, 10):
        reader.read(usual(number, body=f"<x>{number}</x>"))
    assert reader.found == 7


@pytest.mark.parametrize(
    "odd",
    [
        usual("x"),
        usual(" 3 "),
        usual("3", "urn:&amp;"),
        usual("3", "urn:é"),
        usual("3", "urn:" + "x" * 300),
        usual("3").replace(b"<x/>", b"<x>"),
        usual("3").replace(b"<x/>", b""),
        usual("3").replace(b"s:Body", b"s:Bodyless"),
        usual("3").replace(b"</s:Body>", b"</s:Body><s:Header/>"),
        b"<!DOCTYPE x>" + usual("3"),
        usual("3")[:200],
        b"<",
        b"",
    ],
)
def test_what_is_like_a_template_is_read_as_it_is(odd: bytes) -> None:
    reader = Reader()
    for raw in (usual(1), usual(2), usual(3), odd, odd, odd, usual(4)):
        reader.read(raw)
    assert reader.found >= 2


FAKES = [
    "<!-- <r:Number>{n}</r:Number> --><r:Number >{m}</r:Number>",
    "<x><![CDATA[<r:Number>{n}<]]></x><r:Number >{m}</r:Number>",
    "<?pi <r:Number>{n}<?><r:Number >{m}</r:Number>",
    '<r:Other x="Number>{n}"/><r:Number >{m}</r:Number>',
    '<x xmlns:y="Number>{n}"/><r:Number >{m}</r:Number>',
    "<x:Number xmlns:x='urn:x'>{n}</x:Number><r:Number >{m}</r:Number>",
    "<r:Number>{n}<!-- -->0</r:Number>",
    "<r:Number>{n}</r:Number><r:Number>{n}</r:Number>",
    "<r:Number>{n}</r:Number><x><s:Header></s:Header><s:Body/></x>",
    "<r:Number>{n}</r:Number><s:Header></s:Header><s:Body>{m}</s:Body>",
    "<r:Number>{n}</r:Number><x>Body</x>",
]


@pytest.mark.parametrize("fake", FAKES)
def test_a_header_that_only_looks_usual_is_never_read_wrongly(fake: str) -> None:
    reader = Reader()
    for number in (1, 2, 987654321, 3, 4, 5, 987654321):
        name = f"<a:MessageID>urn:{number}</a:MessageID>"
        reader.read(document(name + fake.format(n=number, m=7)))


TEXTS = st.sampled_from(["1", "2", "33", "987654321", "x", "urn:probe", "urn:a", " 1", "1'", 'a"b'])
PIECES = st.one_of(
    st.builds("<a:MessageID>{}</a:MessageID>".format, TEXTS),
    st.builds("<r:Number>{}</r:Number>".format, TEXTS),
    st.builds("<r:Number >{}</r:Number>".format, TEXTS),
    st.builds(lambda fake, n, m: fake.format(n=n, m=m), st.sampled_from(FAKES), TEXTS, TEXTS),
    st.sampled_from([" ", "Body", "<s:Body>", "</s:Header>", "<x a='1>2'/>", "<a:To>urn:t</a:To>"]),
)
DOCUMENTS = st.builds(
    lambda pieces, body, before, after, root: document(
        "".join(pieces), body, before=before, after=after, root=root
    ),
    st.lists(PIECES, max_size=4),
    st.sampled_from(["<x/>", "<x/><x/>", "", "<Body/>", "<x>", "text"]),
    st.sampled_from(["", "", "<?xml version='1.0' encoding='UTF-8'?>", "\ufeff", "<!-- Body -->"]),
    st.sampled_from(
        ["<s:Body>", "<s:Body>", "<s:Body a='b'>", "<s:Bodyless/><s:Body>", "<x/><s:Body>"]
    ),
    st.sampled_from(["", "", " number='1'", " xmlns='urn:r'"]),
)


@few(40)
@given(st.lists(st.one_of(DOCUMENTS, st.builds(usual, TEXTS)), max_size=6), st.integers(1, 3))
@example([usual(1), usual(2), usual(3, "987654321"), usual(987654321)], 1)
def test_templates_and_the_plain_reading_agree(documents: list[bytes], times: int) -> None:
    reader = Reader()
    for _ in range(times):
        for raw in documents:
            reader.read(raw)


def test_a_new_kind_of_header_each_time_leaves_little_behind() -> None:
    reader = Reader()
    for number in range(3_000):
        raw = usual(number).replace(b"<s:Header>", b'<s:Header x="%d">' % number)
        reader.read(raw)
        reader.read(raw)
    assert "HeaderTemplates 1024" in repr(reader.templates)
