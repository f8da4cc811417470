"""What a stranger reaches of a consumer of BICEPS reports: any envelope, sent or answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from instep.errors import BaselineError
from instep.model.records import Record
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from instep_sdpi.session import ReportSession
from instep_sdpi.wire.eventing import read_end, read_granted, read_subscribed
from instep_sdpi.wire.mdib import MdibRequest, read_pages
from instep_sdpi.wire.metadata import read_metadata
from instep_sdpi.wire.names import MdibPart
from instep_sdpi.wire.report_sequence import NumberError, read_message_number
from instep_sdpi.wire.report_templates import ReportTemplates
from instep_sdpi.wire.reports import NumberedReport, read_numbered_report, read_report
from instep_soap import (
    Envelope,
    HeaderReading,
    SoapFaultError,
    XmlError,
    XmlLimits,
    read_envelope,
)
from instep_soap.addressing import read_addressing
from tests.instep_sdpi.sdpi_kit import envelope, metric_report, report

__all__ = ["SDPI_SEEDS", "SDPI_TARGETS", "SDPI_WORDS"]

_LIMITS: Final = XmlLimits(max_elements=10_000)
_MOST_CHARS: Final = 4_096


def sdpi_report(data: bytes) -> None:
    """Any report is read, refused, or kept as it came; what is read can be stored."""
    read = _envelope(data)
    if read is None:
        return
    with suppress(NumberError):
        number = read_message_number(read.headers)
        assert number is None or number >= 1
    with suppress(XmlError):
        read_end(read)
    with suppress(XmlError):
        found = read_report(read)
        if found is not None:
            assert len(found.digest()) == 16
            message = _session()._message(1, found, len(data))
            _check(message.records)
            assert all(one.reason for one in message.unreadable)


def sdpi_template(data: bytes) -> None:
    """What a template reads of a report is what the report says."""
    templates = ReportTemplates(_reading, _LIMITS)
    for raw in (*SDPI_SEEDS["sdpi_template"], data, data, data):
        plain, found = _reading(raw), templates.find(raw)
        if found is not None:
            assert found[0] == plain
        elif plain is not None:
            templates.learn(raw, plain)


def _reading(data: bytes) -> HeaderReading[NumberedReport] | None:
    read = _envelope(data)
    if read is None:
        return None
    try:
        addressing = read_addressing(read.headers)
    except SoapFaultError:
        return None
    headers = read_numbered_report(read)
    return None if headers is None else HeaderReading(read.version, addressing, headers)


def sdpi_answer(data: bytes) -> None:
    """Any answer of a provider is read or refused in our terms; what is read can be stored."""
    read = _envelope(data)
    if read is None:
        return
    with suppress(XmlError):
        assert read_subscribed(read, 0.0).manager.address
    with suppress(XmlError):
        # Without Expires it lasts until it is ended.
        assert read_granted(read, "RenewResponse", 0.0) >= 0.0
    with suppress(XmlError):
        read_metadata(read)
    for asked in MdibRequest:
        with suppress(XmlError, BaselineError):
            for page in read_pages(read, asked):
                _check(_session().baseline(page))


def _session() -> ReportSession:
    return ReportSession("s", frozenset(MdibPart), SequencedFeedSettings())


def _envelope(data: bytes) -> Envelope | None:
    try:
        return read_envelope(data, _LIMITS)
    except SoapFaultError:
        return None


def _check(records: Iterable[Record]) -> None:
    for record in records:
        assert record.key.partition("/")[2]
        assert len(record.key) <= _MOST_CHARS
        assert "\0" not in record.key
        assert len(record.entity_class) <= _MOST_CHARS
        for raw in (record.body, record.envelope):
            if raw:
                assert isinstance(msgspec.json.decode(raw), dict)
                # A text may be a backslash and u0000: then JSON has two backslashes.
                assert b"\\u0000" not in raw.replace(b"\\\\", b"")


_DELETED: Final = (
    '<msg:ReportPart ModificationType="Del"><msg:Descriptor Handle="m1"'
    ' xsi:type="dom:NumericMetricDescriptor"/></msg:ReportPart>'
)
_MDIB: Final = (
    '<msg:GetMdibResponse MdibVersion="7" SequenceId="urn:uuid:a"><msg:Mdib><dom:MdDescription>'
    '<dom:Mds Handle="mds0"><dom:Vmd Handle="vmd0"><dom:Channel Handle="ch0">'
    '<dom:Metric Handle="m1" xsi:type="dom:NumericMetricDescriptor"/></dom:Channel></dom:Vmd>'
    '</dom:Mds></dom:MdDescription><dom:MdState><dom:State DescriptorHandle="m1"'
    ' xsi:type="dom:NumericMetricState" StateVersion="3"><dom:MetricValue Value="1"/></dom:State>'
    "</dom:MdState></msg:Mdib></msg:GetMdibResponse>"
)
SDPI_TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "sdpi_report": sdpi_report,
    "sdpi_template": sdpi_template,
    "sdpi_answer": sdpi_answer,
}
SDPI_SEEDS: Final = {
    "sdpi_report": [
        envelope(metric_report("1"), number="1"),
        envelope(report("DescriptionModificationReport", _DELETED, 3), number="2"),
        envelope("<wse:SubscriptionEnd><wse:Status>x</wse:Status></wse:SubscriptionEnd>"),
    ],
    "sdpi_template": [envelope(metric_report(str(n), n), number=str(n)) for n in (1, 2, 3)],
    "sdpi_answer": [
        envelope(_MDIB),
        envelope(
            "<wse:SubscribeResponse><wse:SubscriptionManager><wsa:Address>http://h/a</wsa:Address>"
            "</wse:SubscriptionManager><wse:Expires>PT11.8S</wse:Expires></wse:SubscribeResponse>"
        ),
        envelope("<wse:RenewResponse><wse:Expires>PT1H</wse:Expires></wse:RenewResponse>"),
    ],
}
SDPI_WORDS: Final = [
    *(b"01", b" 7 ", b"-1", b"1" + b"0" * 30, b"&#0;", b"&#x1F;", b"\xc2\x85", b"P1Y", b"PT1E9S"),
    *(b' MdibVersion="', b' Handle="', b' xsi:type="', b"<dom:State ", b"<![CDATA[", b"<?x?>"),
    *(b"<msg:ReportPart>", b' xmlns:dom=""', b"<a>" * 300, b"9999-12-31T23:59:59Z"),
]
