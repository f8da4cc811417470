"""Reports to entities: each class, what cannot be read, and what is functionally identical."""

from __future__ import annotations

import json

import pytest

from instep_sdpi.wire.names import REPORTS, MdibPart, report_kind
from instep_sdpi.wire.reports import Report, read_report
from instep_soap import XmlError, read_envelope
from tests.instep_sdpi.sdpi_kit import envelope, metric_report, metric_state, report


def read(body: str) -> Report:
    found = read_report(read_envelope(envelope(body)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "element", "class_", "part"),
    [
        ("EpisodicMetricReport", "MetricState", "StringMetricState", MdibPart.METRIC),
        (
            "EpisodicMetricReport",
            "MetricState",
            "DistributionSampleArrayMetricState",
            MdibPart.METRIC,
        ),
        ("EpisodicAlertReport", "AlertState", "AlertSignalState", MdibPart.ALERT),
        ("EpisodicAlertReport", "AlertState", "LimitAlertConditionState", MdibPart.ALERT),
        ("EpisodicComponentReport", "ComponentState", "ClockState", MdibPart.COMPONENT),
        ("EpisodicComponentReport", "ComponentState", "SystemContextState", MdibPart.COMPONENT),
        (
            "EpisodicOperationalStateReport",
            "OperationState",
            "SetAlertStateOperationState",
            MdibPart.OPERATION,
        ),
    ],
)
def test_a_state_has_its_part_and_its_class(
    name: str, element: str, class_: str, part: MdibPart
) -> None:
    state = f'<msg:{element} xsi:type="dom:{class_}" DescriptorHandle="h"/>'
    (found,) = read(report(name, f"<msg:ReportPart>{state}</msg:ReportPart>")).entities
    assert (found.key, found.entity_class, found.part) == ("state/h", class_, part)


def test_a_context_state_goes_by_its_own_handle() -> None:
    states = "".join(
        '<msg:ContextState xsi:type="dom:PatientContextState" DescriptorHandle="PC"'
        f' Handle="{handle}"/>'
        for handle in ("p1", "p2")
    )
    found = read(report("EpisodicContextReport", f"<msg:ReportPart>{states}</msg:ReportPart>"))
    assert [(one.key, one.descriptor) for one in found.entities] == [
        ("state/p1", "PC"),
        ("state/p2", "PC"),
    ]
    assert all(one.part is MdibPart.CONTEXT for one in found.entities)


def test_a_waveform_states_its_class_by_its_element() -> None:
    (found,) = read(report("WaveformStream", '<msg:State DescriptorHandle="w"/>')).entities
    assert (found.entity_class, found.part) == (
        "RealTimeSampleArrayMetricState",
        MdibPart.WAVEFORM,
    )


def test_a_created_descriptor_comes_with_what_it_contains_and_with_its_states() -> None:
    part = """<msg:ReportPart ModificationType="Crt" ParentDescriptor="vmd0">
      <msg:SourceMds>mds0</msg:SourceMds>
      <msg:Descriptor xsi:type="dom:ChannelDescriptor" Handle="ch9" DescriptorVersion="3">
        <dom:Metric xsi:type="dom:NumericMetricDescriptor" Handle="n9"/>
      </msg:Descriptor>
      <msg:State xsi:type="dom:ChannelState" DescriptorHandle="ch9"/>
    </msg:ReportPart>"""
    found = read(report("DescriptionModificationReport", part))
    assert [(one.key, one.parent, one.source_mds) for one in found.entities] == [
        ("descriptor/ch9", "vmd0", "mds0"),
        ("descriptor/n9", "ch9", "mds0"),
        ("state/ch9", "", "mds0"),
    ]
    assert json.loads(found.entities[0].body) == {"Handle": "ch9", "DescriptorVersion": "3"}


def test_a_deleted_descriptor_ends_with_what_the_report_shows_of_it() -> None:
    part = """<msg:ReportPart ModificationType="Del">
      <msg:Descriptor xsi:type="dom:ChannelDescriptor" Handle="ch9">
        <dom:Metric xsi:type="dom:NumericMetricDescriptor" Handle="n9"/></msg:Descriptor>
      <msg:State xsi:type="dom:ChannelState" DescriptorHandle="ch9"/></msg:ReportPart>"""
    found = read(report("DescriptionModificationReport", part))
    assert [(one.key, one.ends) for one in found.entities] == [
        ("descriptor/ch9", True),
        ("descriptor/n9", True),
    ]
    assert found.ends_some


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ('<msg:MetricState DescriptorHandle="h"/>', "no xsi:type"),
        ('<msg:MetricState xsi:type="dom:NumericMetricState"/>', "no DescriptorHandle"),
        ('<msg:MetricState xsi:type="no:Such" DescriptorHandle="h"/>', "no qualified name"),
        ('<msg:MetricState xsi:type="dom:NumericMetricState" DescriptorHandle=" "/>', "no Desc"),
        ('<msg:MetricState xsi:type="dom:PatientContextState" DescriptorHandle="h"/>', "no Handle"),
    ],
)
def test_what_cannot_be_read_is_kept_and_the_rest_is_read(state: str, reason: str) -> None:
    parts = f"<msg:ReportPart>{metric_state('1')}{state}{metric_state('2', 'm2')}</msg:ReportPart>"
    found = read(report("EpisodicMetricReport", parts))
    assert [one.key for one in found.entities] == ["state/m1", "state/m2"]
    (bad,) = found.unreadable
    assert reason in bad.reason
    assert b"MetricState" in bad.raw


@pytest.mark.parametrize("version", ["-1", "x", "1.5", "18446744073709551616", "9" * 5_000])
def test_a_report_whose_version_is_no_number_is_refused(version: str) -> None:
    body = f'<msg:EpisodicMetricReport MdibVersion="{version}" SequenceId="urn:uuid:1"/>'
    with pytest.raises(XmlError, match="MdibVersion"):
        read(body)


def test_a_report_without_a_sequence_id_is_refused() -> None:
    with pytest.raises(XmlError, match="SequenceId"):
        read('<msg:EpisodicMetricReport MdibVersion="1"/>')


def test_what_is_not_stated_is_version_0_of_no_instance() -> None:
    found = read('<msg:EpisodicMetricReport SequenceId="urn:uuid:1"/>')
    assert found.version.version == 0
    assert found.version.counted_in == ("urn:uuid:1", None)


def test_a_long_text_is_not_repeated_in_every_entity() -> None:
    states = "".join(metric_state("1", f"m{number}") for number in range(10))
    long = "x" * 100_000
    part = f"<msg:ReportPart><msg:SourceMds>{long}</msg:SourceMds>{states}</msg:ReportPart>"
    found = read(report("EpisodicMetricReport", part))
    assert {one.source_mds for one in found.entities} == {""}
    typed = f'<msg:MetricState xsi:type="dom:{long}" DescriptorHandle="h"/>'
    (bad,) = read(
        report("EpisodicMetricReport", f"<msg:ReportPart>{typed}</msg:ReportPart>")
    ).unreadable
    assert len(bad.reason) < 300


@pytest.mark.parametrize("body", ["", "<msg:Unheard/>", "<dom:EpisodicMetricReport/>"])
def test_another_body_is_no_report(body: str) -> None:
    assert read_report(read_envelope(envelope(body))) is None


def test_r0802_functionally_identical_is_not_byte_for_byte() -> None:
    one = read(metric_report("1"))
    respelled = metric_report("1").replace("><", "> <").replace(" Value=", "  Value=")
    assert read(respelled).digest() == one.digest()
    assert read(metric_report("2")).digest() != one.digest()
    assert read(metric_report("1", version=2)).digest() != one.digest()
    assert read(metric_report("1", sequence="urn:uuid:2")).digest() != one.digest()


def test_an_extension_stays_xml_and_its_spelling_does_not_count() -> None:
    def state(prefix: str) -> str:
        return (
            '<msg:MetricState xsi:type="dom:NumericMetricState" DescriptorHandle="h">'
            f'<ext:Extension><{prefix}:A xmlns:{prefix}="urn:a" x="1">t</{prefix}:A>'
            "</ext:Extension></msg:MetricState>"
        )

    parts = f"<msg:ReportPart>{state('q')}</msg:ReportPart>"
    (found,) = read(report("EpisodicMetricReport", parts)).entities
    body = json.loads(found.body)
    name = "{http://standards.ieee.org/downloads/11073/11073-10207-2017/extension}Extension"
    assert '<q:A xmlns:q="urn:a" x="1">t</q:A>' in body[name]


def test_the_reports_have_the_actions_of_their_services() -> None:
    base = "http://standards.ieee.org/downloads/11073/11073-20701-2018"
    assert REPORTS["EpisodicContextReport"].action == f"{base}/ContextService/EpisodicContextReport"
    kind = report_kind(f"{base}/DescriptionEventService/DescriptionModificationReport")
    assert kind is REPORTS["DescriptionModificationReport"]
    assert report_kind("NoSuchReport") is None
