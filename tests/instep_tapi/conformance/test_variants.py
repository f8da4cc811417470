"""Each way of the kit to break TR-548 is found by its rule, with evidence; nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.conformance import ConformanceReport, judge
from instep_tapi.conformance import connections
from instep_tapi.conformance.book import tapi_rules
from instep_tapi_provider import Faults, ProviderSettings
from instep_tapi_provider.deviations import DEVIATIONS
from tests.instep_tapi.conformance.virtual_kit import World, crowded_life, usual_life

FOUND = {
    "no-type-name": {"type-mandatory"},
    "no-retention": {"type-mandatory"},
    "no-classes": {"type-mandatory"},
    "short-strategies": {"type-strategies"},
    "no-delay": {"compacted-details"},
    "no-details": {"compacted-details"},
    "periods-with-unit": {"periods-in-minutes"},
    "short-retention": {"retention-above-delay"},
    "finite-network": {"compacted-forever"},
    "finite-alarms": {"compacted-forever", "alarms-forever"},
    "all-truncated": {"compacted-offered", "alarms-compacted", "retention-kept"},
    "alarms-truncated": {"alarms-compacted", "retention-kept"},
    "no-state": {"stream-mandatory"},
    "no-protocol": {"stream-mandatory"},
    "unknown-type": {"type-reference"},
    "unknown-state": {"stream-state"},
    "other-protocol": {"protocol-allowed"},
    "twice": {"uuids-unique"},
    "undeclared-class": {"class-declared"},
    "paused-goes-on": {"paused-silent"},
    "refuses-all": {"connection-accepted"},
    "refuses-tokens": {"token-accepted"},
    "one-client": {"second-client"},
    "last-client": {"second-client"},
    "ends-idle": {"idle-kept"},
    "needs-no-pong": {"pong-timeout"},
    "drops-slow": {"slow-kept"},
    "overflows": {"slow-lossless", "at-least-once"},
    "keeps-lost": {"slow-dropped"},
    "together": {"slow-alone"},
    "no-token": {"token"},
    "shared-token": {"token-one-record"},
    "no-append-time": {"append-time"},
    "odd-append-time": {"append-time"},
    "append-time-ahead": {"append-time-past"},
    "append-time-back": {"append-times-grow"},
    "no-key": {"entity-key"},
    "one-key": {"key-one-entity"},
    "short-types": {"record-type"},
    "no-offset": {"offset"},
    "no-content-name": {"record-content"},
    "unknown-class": {"class-known"},
    "empty-alarm": {"entity-stated"},
    "other-member": {"entity-stated"},
    "no-uuid": {"entity-identified"},
    "no-event-time": {"event-time"},
    "nested-event-time": {"event-time-flat"},
    "odd-spread": {"event-time-names"},
    "half-interval": {"event-time-between"},
    "no-parent": {"parent-address"},
    "paths-as-parents": {"parent-address-form"},
    "parents-upwards": {"parent-address-order"},
    "half-json": {"message-json"},
    "empty-json": {"message-json"},
    "no-tombstone": {"delete-tombstone"},
    "no-alarm-tombstone": {"clear-tombstone"},
    "clear-by-update": {"clear-delete"},
    "nameless-detector": {"alarm-mandatory"},
    "short-detector-type": {"detector-type"},
    "odd-alarm-state": {"alarm-state"},
    "no-alarm-state": {"alarm-state"},
    "severity-cleared": {"severity-cleared"},
    "swapped": {"order"},
    "two-partitions": {"one-partition"},
    "leaves-out": {"at-least-once"},
    "begins-at-latest": {"start-oldest", "all-streamed"},
    "skips-after-token": {"token-next"},
    "ignores-tokens": {"token-used"},
    "takes-old-tokens": {"token-old"},
    "forgets-young": {"delay-kept"},
    "forgets-entities": {"latest-kept", "all-streamed"},
    "forgets-tombstones": {"tombstones-kept"},
    "lacks-entities": {"all-streamed"},
    "half-entities": {"whole-records"},
    "states-untold": {"get-agrees"},
    "ends-untold": {"none-bogus"},
}
"""Deviation → the rules that it breaks."""


OF_CONNECTIONS = {rule.id.removeprefix("tapi-") for rule in connections.RULES}


def lived(deviates: str, tapi: str = "2.1.3", life: Callable[[World], None] = usual_life) -> World:
    settings = ProviderSettings().of_edition(tapi)
    world = World(settings, faults=Faults(deviates=deviates), tapi=tapi)
    life(world)
    return world


def lived_to_show(deviates: str) -> World:
    """A life in which a deviation shows."""
    tapi = "2.6" if deviates == "clear-by-update" else "2.1.3"
    life = usual_life if FOUND[deviates].isdisjoint(OF_CONNECTIONS) else crowded_life
    return lived(deviates, tapi, life)


def broken(report: ConformanceReport) -> dict[str, str]:
    return {one.rule.removeprefix("tapi-"): one.reason for one in report.broken}


def test_all_deviations_are_tried() -> None:
    assert FOUND.keys() == DEVIATIONS.keys()
    assert len(FOUND) >= 40


@pytest.mark.parametrize("tapi", ["2.1.3", "2.6"])
def test_a_provider_as_it_is_specified_breaks_nothing(tapi: str) -> None:
    report = judge(tapi_rules(), lived("", tapi).trace)
    assert broken(report) == {}
    assert report.edition == tapi
    unseen = {one.rule for one in report.results if one.status == "not seen"}
    unseen -= {rule.id for rule in connections.RULES}
    # The kit states no interval, DELETE in 2.6 has no class, and no modules are given.
    assert unseen <= {
        "tapi-event-time-between",
        "tapi-history-kept",
        "tapi-retention-kept",
        "tapi-create-new",
        "tapi-change-known",
        "tapi-start-latest",
        "tapi-clear-delete",
        "tapi-clear-tombstone",
        "tapi-yang-streams",
        "tapi-yang-record",
    }


@pytest.mark.parametrize("tapi", ["2.1.3", "2.6"])
def test_a_provider_that_serves_two_clients_breaks_nothing(tapi: str) -> None:
    report = judge(tapi_rules(), lived("", tapi, crowded_life).trace)
    assert broken(report) == {}
    unseen = {one.rule.removeprefix("tapi-") for one in report.results if one.status == "not seen"}
    assert OF_CONNECTIONS.isdisjoint(unseen)


@pytest.mark.parametrize("deviates", FOUND)
def test_a_deviation_is_found_by_its_rule_and_by_no_other(deviates: str) -> None:
    report = judge(tapi_rules(), lived_to_show(deviates).trace)
    assert broken(report).keys() == FOUND[deviates], broken(report)
    assert all(one.reason and one.evidence for one in report.broken)
