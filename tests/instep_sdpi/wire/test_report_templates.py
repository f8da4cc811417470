"""What a template reads of a report is what the report says, whatever it looks like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep_sdpi.wire import report_templates
from instep_sdpi.wire.report_templates import ReportTemplates
from instep_sdpi.wire.reports import NumberedReport, read_numbered_report
from instep_soap import HeaderReading, SoapFaultError, XmlLimits, read_envelope
from instep_soap.addressing import read_addressing
from tests.instep_sdpi.capture_kit import CAPTURES, body_bytes, needs_captures
from tests.instep_sdpi.sdpi_kit import envelope, metric_state, report
from tests.instep_soap.soap_kit import fresh_vocabulary
from tests.properties_kit import few

LIMITS = XmlLimits(max_elements=200)


@pytest.fixture(autouse=True, scope="module")
def fresh() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fresh_vocabulary(monkeypatch)
        yield


def read(raw: bytes) -> HeaderReading[NumberedReport] | None:
    try:
        found = read_envelope(raw, LIMITS)
        addressing = read_addressing(found.headers)
    except SoapFaultError:
        return None
    headers = read_numbered_report(found)
    return None if headers is None else HeaderReading(found.version, addressing, headers)


class Reader:
    """Reads by templates, and learns as an endpoint does; each is compared."""

    def __init__(self) -> None:
        self.templates = ReportTemplates(read, LIMITS)
        self.found: list[bool] = []

    def read(self, raw: bytes) -> None:
        found, plain = self.templates.find(raw), read(raw)
        self.found.append(found is not None)
        if found is not None:
            reading, empty = found
            assert plain is not None
            assert reading == plain
            assert reading.headers.report.digest() == plain.headers.report.digest()
            assert not empty.headers
            assert not empty.body
        elif plain is not None:
            self.templates.learn(raw, plain)


def found(raws: Iterable[bytes]) -> list[bool]:
    reader = Reader()
    for raw in raws:
        reader.read(raw)
    return reader.found


def message(number: object, states: str, version: object = None, more: str = "") -> bytes:
    """A report of metrics."""
    parts = f"<msg:ReportPart><msg:SourceMds>mds0</msg:SourceMds>{states}</msg:ReportPart>{more}"
    body = report("EpisodicMetricReport", parts)
    stated = number if version is None else version
    body = body.replace('MdibVersion="1"', f'MdibVersion="{stated}"')
    return envelope(body, str(number), f"<wsa:MessageID>urn:uuid:{number}</wsa:MessageID>")


def usual(number: int, states: int = 2) -> bytes:
    each = (metric_state(f"{number}.{at}", f"m{number + at}", number) for at in range(states))
    return message(number, "".join(each))


def test_the_third_report_of_a_kind_is_read_by_a_template() -> None:
    assert found(usual(number, 1) for number in range(1, 6)) == [False, False, True, True, True]


def test_reports_of_one_kind_may_have_any_states_that_are_known() -> None:
    text = (
        '<msg:MetricState xsi:type="dom:StringMetricState" DescriptorHandle="t{n}">'
        '<dom:MetricValue Value="a {n} % \u0020"/></msg:MetricState>'
    )
    first = [usual(1, 1), usual(2, 1), message(3, text.format(n=3)), message(4, text.format(n=4))]
    mixed = text.format(n=5) + metric_state("5") + text.format(n=6) + text.format(n=7)
    assert found([*first, message(5, mixed), message(6, "\n  " + mixed)])[4:] == [True, False]


@pytest.mark.parametrize(
    ("name", "element", "attributes"),
    [
        (
            "EpisodicContextReport",
            "ContextState",
            'xsi:type="dom:PatientContextState" DescriptorHandle="pc" Handle="p{n}"',
        ),
        ("EpisodicAlertReport", "AlertState", 'DescriptorHandle="{n}" xsi:type="dom:AlertState"'),
    ],
)
def test_other_states_are_read_by_a_template(name: str, element: str, attributes: str) -> None:
    raws = []
    for number in range(4):
        state = f"<msg:{element} {attributes.format(n=number)}></msg:{element}>"
        body = report(name, f"<msg:ReportPart>{state}</msg:ReportPart>", number)
        raws.append(envelope(body, str(number + 1)))
    assert found(raws) == [False, False, True, True]


def test_waveforms_are_read_by_a_template() -> None:
    raws = [
        envelope(
            report(
                "WaveformStream",
                f'<msg:State DescriptorHandle="w"><dom:MetricValue Samples="{number} 2 3"/>'
                "</msg:State>",
                number,
            ),
            str(number),
        )
        for number in (1, 2, 3)
    ]
    assert found(raws) == [False, False, True]


def test_a_class_is_never_taken_for_another() -> None:
    classes = ["NumericMetricState", "StringMetricState", "EnumStringMetricState"]
    raws = [
        message(
            number,
            f'<msg:MetricState xsi:type="dom:{classes[number % 3]}" DescriptorHandle="m{number}">'
            "</msg:MetricState>",
        )
        for number in range(1, 10)
    ]
    assert found(raws)[6:] == [True] * 3


ODD = [
    message(3, metric_state("3", handle=" ")),
    message(3, metric_state("3", handle="")),
    message(3, metric_state("3", handle="h" * 1_024)),
    message(3, metric_state("3", handle="h" * 1_025)),
    message(3, metric_state("&#51;")),
    message(3, metric_state("é")),
    message(3, metric_state("3\t4")),
    message(3, metric_state("\\u0041")),
    message(3, metric_state("3").replace('Value="3"', "Value='3'")),
    message(3, metric_state("3").replace("</msg:MetricState>", "</msg:MetricState >")),
    message(3, metric_state("3") + "</msg:MetricState>"),
    message(3, metric_state("3") * 150),
    message("0", metric_state("3")),
    message("01", metric_state("3")),
    message("1" + "0" * 30, metric_state("3"), 7),
    message(3, metric_state("3"), "-1"),
    message(3, metric_state("3"), " 7 "),
    message(3, metric_state("3"), "007"),
    message(3, metric_state("3"), 1 << 64),
    message(3, metric_state("3"), (1 << 64) - 1),
    message(3, ""),
    b"<!DOCTYPE x>" + usual(3),
    usual(3)[:-1],
    usual(3, 1).replace(b'Value="3.0"', b"Value=\0"),
    usual(3).replace(b"</msg:ReportPart>", b""),
    usual(3).replace(b"</msg:EpisodicMetricReport>", b""),
    usual(3).replace(b"urn:uuid:3", b"urn:uuid:\0"),
    b"<",
    b"",
]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_like_a_template_is_read_as_it_is(odd: bytes) -> None:
    one = [usual(number, 1) for number in (1, 2, 3)]
    two = [usual(number) for number in (1, 2, 3)]
    assert sum(found([*one, *two, odd, odd, odd, usual(4)])) >= 4


TYPE = 'xsi:type="dom:NumericMetricState"'
STATE = f'<msg:MetricState {TYPE} DescriptorHandle="m{{n}}"'
FAKES = [
    # A part that ends what it has begun, and one of states that end.
    f'{STATE}/></msg:ReportPart><msg:ReportPart ModificationType="Del">{STATE}></msg:MetricState>',
    f"{STATE}/></msg:ReportPart><msg:ReportPart ModificationType='Del'>{STATE}></msg:MetricState>",
    f"{STATE}/>{STATE}></msg:MetricState>",
    f"{STATE}>{STATE}></msg:MetricState></msg:MetricState>",
    f"{STATE}></msg:MetricState ><x></x>{STATE}></msg:MetricState>",
    f"{STATE}><!-- </msg:MetricState> --></msg:MetricState>",
    f'{STATE}><!-- "{{m}}" --></msg:MetricState>',
    f"{STATE}><![CDATA[</msg:MetricState>{{n}}]]></msg:MetricState>",
    f"{STATE}><?x </msg:MetricState>?></msg:MetricState>",
    f"<!-- {STATE}></msg:MetricState> -->",
    f'{STATE} x=\'"\' y="{{n}}"></msg:MetricState>',
    f"{STATE} x='>' y=\"{{n}}\"></msg:MetricState>",
    f'{STATE} y=" {{n}} " {{m}}="1"></msg:MetricState>',
    f'{STATE} y="zq0001qz"></msg:MetricState>',
    f'{STATE}><dom:A x="{{n}}">zq0001qz</dom:A></msg:MetricState>',
    f'{STATE}><dom:A x="{{n}}">&#122;q0001qz</dom:A></msg:MetricState>',
    f'{STATE}><dom:A x="{{n}}">say "{{n}}" and "{{m}}"</dom:A></msg:MetricState>',
    f'{STATE}><dom:A x="{{n}}"> "{{n}} " </dom:A></msg:MetricState>',
    f'{STATE}><dom:A x="{{n}}"/>"{{n}}"</msg:MetricState>',
    f'{STATE}><e:A xmlns:e="urn:{{n}}" e:x="{{n}}" a="2"/></msg:MetricState>',
    f'{STATE}><e:A xmlns:e = "urn:{{n}}"/></msg:MetricState>',
    f'{STATE}><ext:A><e:A xmlns:e="urn:e" z="{{n}}" a="{{m}}"/></ext:A></msg:MetricState>',
    f'{STATE}><dom:A xsi:type="dom:T{{n}}" x="{{n}}"/></msg:MetricState>',
    f'{STATE}><dom:A xsi:type="d:T" x="{{n}}"/></msg:MetricState>',
    f'{STATE} xmlns:dom="urn:{{n}}"></msg:MetricState>',
    f'{STATE} xml:lang="{{n}}" Type="{{n}}" xtype="{{m}}"></msg:MetricState>',
    f'{STATE} StateVersion="{{n}}" StateVersion="{{m}}"></msg:MetricState>',
    f'{STATE} Value="{{n}}"><dom:Value Value="{{m}}"/></msg:MetricState>',
    f'{STATE}><dom:Validator a="{{n}}"/><dom:Validator a="{{m}}"/></msg:MetricState>',
    '<msg:MetricState DescriptorHandle="m{n}"></msg:MetricState>',
    '<msg:MetricState xsi:type="dom:{m}State" DescriptorHandle="m{n}"></msg:MetricState>',
    '<msg:MetricState xsi:type="no name" DescriptorHandle="m{n}"></msg:MetricState>',
    '<dom:MetricState xsi:type="dom:XState" DescriptorHandle="m{n}"></dom:MetricState>',
    '<MetricState xsi:type="dom:XState" DescriptorHandle="m{n}"></MetricState>',
    "<msg:MetricState xsi:type='dom:XState' DescriptorHandle='m{n}'></msg:MetricState>",
    f'{STATE}></msg:MetricState><msg:AlertState {TYPE} DescriptorHandle="m{{m}}"></msg:AlertState>',
    f'<msg:AlertState {TYPE} DescriptorHandle="m{{m}}"/>{STATE}></msg:MetricState>',
    f'{STATE}></msg:MetricState><msg:ParentDescriptor x="{{n}}"/>{STATE}></msg:MetricState>',
]
FRAMES = [
    ("", ""),
    (" MdibVersion='{m}'", ""),
    (' x:MdibVersion="{n}" xmlns:x="urn:x"', ""),
    (' InstanceId="3"', "<msg:ReportPart/>"),
    (' InstanceId="{m}"', "<!-- {n} -->"),
    ("", '<x MdibVersion="{n}"/>'),
    ("", '<sdpi:ReportSequence MessageNumber="{n}"/>'),
    ("", "<wsa:MessageID>{m}</wsa:MessageID>"),
    ("", "<?x?>"),
    ("", f"<msg:ReportPart>{STATE}/></msg:ReportPart>"),
]


def faked(fake: str, n: str, m: str, frame: tuple[str, str] = ("", "")) -> bytes:
    attributes, more = (one.format(n=n, m=m) for one in frame)
    raw = message(n, fake.format(n=n, m=m), more=more)
    return raw.replace(
        b"<msg:EpisodicMetricReport", b"<msg:EpisodicMetricReport" + attributes.encode()
    )


NUMBERS = ("1", "2", "123456789", "987654321", "3", "4", "5")


@pytest.mark.parametrize("fake", FAKES)
def test_a_state_that_only_looks_usual_is_never_read_wrongly(fake: str) -> None:
    found(faked(fake, number, "7") for number in NUMBERS)
    found(faked(fake * 2, number, number) for number in NUMBERS)
    found(faked(fake, number, other) for other in ("1", "--", "<", "2") for number in NUMBERS)
    other = metric_state("1")
    found(
        faked(states, number, "Val")
        for number in NUMBERS
        for states in (fake, other, fake + other, other + fake + fake)
    )


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_that_only_looks_usual_is_never_read_wrongly(frame: tuple[str, str]) -> None:
    found(faked(metric_state("1"), number, "7", frame) for number in NUMBERS)
    found(faked(metric_state("1"), number, number, frame) for number in NUMBERS)


HEADERS = [
    '<x MessageNumber="{n}"/>',
    '<x MdibVersion="{n}"/>',
    '<x><y MessageNumber="{n}"/></x>',
    '<x:MessageID xmlns:x="urn:x">{n}</x:MessageID>',
    '<x y="MessageID>{n}"/>',
    "<!-- MessageID>{n}< -->",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("without", [b"MessageNumber", b"MdibVersion", b"wsa:MessageID", b"x"])
@pytest.mark.parametrize("constant", [b"7", b"123456789", b"987654321"])
def test_a_text_that_stands_elsewhere_counts_for_nothing(
    header: str, without: bytes, constant: bytes
) -> None:
    """What counts is written so that no template knows it, and does not vary."""
    for numbers in (NUMBERS, NUMBERS[::-1], ("--", *NUMBERS)):
        raws = []
        for number in numbers:
            raw = message(1, metric_state("1"), 1)
            raw = raw.replace(b"<s12:Header>", b"<s12:Header>" + header.format(n=number).encode())
            attribute = without + b'="1"'
            raw = raw.replace(attribute, b"%b='%b'" % (without, constant))
            raws.append(raw.replace(b"<%b>" % without, b"<%b >" % without))
        found(raws)


def test_an_encoding_that_hides_markup_makes_no_template() -> None:
    raws = [
        usual(number, 1).replace(b"UTF-8", b"UTF-7").replace(b'.0"', value)
        for number, value in enumerate((b'.0"', b'.1"', b'.2"', b'+ADw-"'), 1)
    ]
    assert not any(found(raws))


VALUES = st.sampled_from(
    [
        "1",
        "2",
        "33",
        "987654321",
        "zq0001qz",
        " 1",
        "1'",
        'a"b',
        "<",
        ">",
        "&amp;",
        "é",
        "%b",
        "h:i",
    ]
)
WRITTEN = st.one_of(
    st.builds(lambda fake, n, m: fake.format(n=n, m=m), st.sampled_from(FAKES), VALUES, VALUES),
    st.builds(metric_state, VALUES, VALUES, st.integers(0, 3)),
    st.sampled_from([" ", "\n", "</msg:ReportPart><msg:ReportPart>", "<!-- -->", "text", "<x/>"]),
)
DOCUMENTS = st.builds(
    lambda number, states, version, frame: (
        faked("{n}", number, "1", frame).replace(
            f">{number}</msg:ReportPart>".encode(), f">{''.join(states)}</msg:ReportPart>".encode()
        )
        if version is None
        else message(number, "".join(states), version)
    ),
    st.sampled_from(["1", "2", "3", "01", "0", "x", "987654321"]),
    st.lists(WRITTEN, max_size=4),
    st.sampled_from([None, "1", "2", "-1", "123456789"]),
    st.sampled_from(FRAMES),
)


@few(50)
@given(st.lists(st.one_of(DOCUMENTS, st.builds(usual, st.integers(1, 5))), max_size=6))
@example([usual(1), usual(2), usual(987654321), usual(123456789)])
def test_templates_and_the_plain_reading_agree(documents: list[bytes]) -> None:
    found(documents * 3)


@few(100)
@given(
    st.integers(0, len(usual(5))),
    st.integers(0, 12),
    st.sampled_from([b"", b"<", b">", b'"', b"'", b"&", b"\\", b"\0", b" ", b"</", b"<!--", b"%"]),
)
def test_a_damaged_report_is_read_as_it_is(at: int, cut: int, put: bytes) -> None:
    raw = usual(5)
    found([usual(1), usual(2), raw[:at] + put + raw[at + cut :], usual(3)])


def test_more_elements_than_allowed_are_left_to_the_parser() -> None:
    raws = [usual(1), usual(2), usual(3, 40), usual(4, 200)]
    assert found(raws) == [False, True, True, False]


def test_forms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_templates, "_MAX_FORMS", 20)
    monkeypatch.setattr(report_templates, "_MAX_FRAMES", 5)
    reader = Reader()
    most = 0
    for number in range(1, 60):
        states = metric_state("1").replace("<dom:", f"<x{number}/><dom:")
        more = f"<x{number}/>" if number > 40 else ""
        for _ in range(3):
            reader.read(message(1, states, more=more))
        frames = reader.templates._frames.values()
        kept = sum(len(shape.forms) for frame in frames for shape in frame.shapes.values())
        assert kept == reader.templates._forms <= 20
        assert len(frames) <= 5
        most = max(most, kept)
    assert most == 20


@needs_captures
@pytest.mark.parametrize("of", ["sdc_seq", "sdc_seq_faults"])
def test_reports_of_another_make_are_read_by_templates(of: str) -> None:
    paths: Sequence[Path] = sorted((CAPTURES / of).glob("*EpisodicMetricReport*.http"))
    assert sum(found(map(body_bytes, paths))) >= 6
