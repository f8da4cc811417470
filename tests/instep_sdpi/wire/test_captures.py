"""What a provider of another make has sent, read whole. The oracle is ElementTree on the bytes."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from instep_sdpi.wire.entities import Entity
from instep_sdpi.wire.eventing import read_end, read_granted, read_subscribed
from instep_sdpi.wire.mdib import read_mdib
from instep_sdpi.wire.metadata import read_metadata
from instep_sdpi.wire.names import MdibPart
from instep_sdpi.wire.report_sequence import read_message_number
from instep_sdpi.wire.reports import Report, read_report
from instep_soap import FaultCode, fault_of, read_envelope
from tests.instep_sdpi.capture_kit import CAPTURES, body_bytes, captured, needs_captures

pytestmark = needs_captures

PM = "{http://standards.ieee.org/downloads/11073/11073-10207-2017/participant}"
SEQUENCE = "urn:uuid:0c178815-bb05-42c8-9698-3d062866e345"


def reports(of: str = "sdc_seq") -> list[tuple[int | None, Report]]:
    found = []
    for envelope in captured("notify_Episodic", of=of):
        report = read_report(envelope)
        assert report is not None
        found.append((read_message_number(envelope.headers), report))
    return found


def test_the_services_of_a_device() -> None:
    (envelope,) = captured("transfer_get_response")
    device = read_metadata(envelope)
    assert device.epr == "urn:uuid:39695e5e-e434-598f-bd52-3c5bb129359c"
    assert [one.service_id for one in device.hosted] == [
        "Get",
        "StateEvent",
        "Set",
        "ContainmentTree",
    ]
    contexts = device.serving("ContextService")
    assert contexts is not None
    assert contexts.service_id == "StateEvent"
    assert [one.address.rpartition("/")[2] for one in contexts.endpoints] == ["StateEvent"]
    assert device.serving("ArchiveService") is None


def test_every_handle_of_an_mdib_is_an_entity() -> None:
    (path,) = (CAPTURES / "sdc_seq").glob("*getmdib_response*")
    root = ET.fromstring(body_bytes(path))
    handles = {e.get("Handle") for e in root.iter() if e.get("Handle") and e.tag != f"{PM}State"}
    states = {e.get("DescriptorHandle") for e in root.iter(f"{PM}State")}
    (envelope,) = captured("getmdib_response")
    mdib = read_mdib(envelope)
    found = [one for one in mdib.entities() if isinstance(one, Entity)]
    assert len(found) == len(list(mdib.entities()))
    assert {one.descriptor for one in found if one.part is MdibPart.DESCRIPTION} == handles
    assert {one.descriptor for one in found if one.part is not MdibPart.DESCRIPTION} == states
    assert (mdib.version.sequence_id, mdib.version.version) == (SEQUENCE, 0)


def test_what_a_descriptor_contains_is_cut_and_its_place_stays() -> None:
    (envelope,) = captured("getmdib_response")
    found = {one.key: one for one in read_mdib(envelope).entities() if isinstance(one, Entity)}
    channel = found["descriptor/ch0.vmd0"]
    assert channel.entity_class == "ChannelDescriptor"
    assert (channel.parent, channel.source_mds) == ("vmd0", "mds0")
    body = json.loads(channel.body)
    assert body.keys() == {"Handle", "SafetyClassification", "Type"}
    assert body["Type"] == {
        "Code": "130637",
        "ConceptDescription": [{"Lang": "en-US", "#text": "static not settable metrics"}],
    }
    condition = found["descriptor/ac0.mds0"]
    assert condition.entity_class == "AlertConditionDescriptor"
    assert json.loads(condition.body)["Source"] == ["mds0"]


def test_a_state_is_stated_alike_in_a_report() -> None:
    number, report = reports()[2]
    assert (number, report.name) == (3, "EpisodicAlertReport")
    assert report.version.version == 3
    (state,) = report.entities
    assert (state.key, state.entity_class) == ("state/ac0.mds0", "AlertConditionState")
    assert state.part is MdibPart.ALERT
    assert json.loads(state.body) == {
        "DescriptorHandle": "ac0.mds0",
        "DescriptorVersion": "0",
        "StateVersion": "1",
        "ActivationState": "On",
        "DeterminationTime": "1795253320073",
        "Presence": "true",
    }


def test_the_numbers_of_two_subscriptions_are_apart() -> None:
    numbers = [number for number, _ in reports()]
    assert numbers == [*range(1, 8), *range(1, 10)]


def test_a_repeat_is_functionally_identical_though_its_message_id_differs() -> None:
    found = reports("sdc_seq_faults")
    by_number: dict[tuple[int | None, int], set[bytes]] = {}
    for number, report in found:
        by_number.setdefault((number, report.version.version), set()).add(report.digest())
    assert len(by_number) < len(found), "the capture has a repeat"
    assert all(len(digests) == 1 for digests in by_number.values())
    assert len({report.digest() for _, report in found}) == len(by_number)


def test_the_granted_time_is_not_the_one_asked_for() -> None:
    granted = read_subscribed(captured("subscribe_response")[0], 0.0)
    assert granted.expires_s == 15.0
    assert "/StateEvent/" in granted.manager.address


def test_what_is_left_has_fractions() -> None:
    (status,) = captured("getstatus_response")
    assert 0 < read_granted(status, "GetStatusResponse", 0.0) < 15.0
    (renewed,) = captured("17_renew_response")
    assert read_granted(renewed, "RenewResponse", 0.0) > 0


def test_an_unknown_subscription_is_a_fault_though_http_says_200() -> None:
    (envelope,) = captured("renew_unknown_response")
    fault = fault_of(envelope)
    assert fault is not None
    assert fault.fault_code is FaultCode.RECEIVER
    assert fault.subcode == "{http://schemas.xmlsoap.org/ws/2004/08/eventing}InvalidMessage"


def test_a_bare_status_and_a_malformed_manager_are_an_end_all_the_same() -> None:
    ends = [read_end(envelope) for envelope in captured("SubscriptionEnd")]
    assert [str(end) for end in ends] == [
        "SourceShuttingDown: Event source going off line.",
    ] * 2


@pytest.mark.parametrize("name", ["dev32-example-02.xml", "dev32-example-05.xml"])
def test_the_published_examples_have_their_numbers(name: str) -> None:
    envelope = read_envelope((CAPTURES / name).read_bytes())
    assert read_message_number(envelope.headers) in {1, 4}
    assert read_report(envelope) is None
