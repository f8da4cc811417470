"""Slow, idle and several clients: what is concluded from one coincidence, and real connections."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from instep.conformance import (
    ConformanceReport,
    ConnectionClosed,
    ConnectionOpened,
    ConnectionRefused,
    Event,
    MessageReceived,
    PongSent,
    PongsWithheld,
    ReadingPaused,
    ReadingResumed,
    ResponseReceived,
    judge,
)
from instep_tapi.conformance import connections
from instep_tapi.conformance.book import tapi_rules
from instep_tapi.conformance.observations import DeclaredType
from instep_tapi.conformance.probe import ACTIVE, probe_source
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource
from instep_tapi_provider import Faults, Provider, ProviderSettings, topology_context

_S = 1_000_000
_STREAM = "stream-1"
_DECLARED = (
    b'{"tapi-streaming:stream-context":{"available-stream":[{"uuid":"stream-1","stream-id":"one",'
    b'"stream-state":"STREAM_STATE_ACTIVE","connection-protocol":"websockets"}],'
    b'"supported-stream-type":[]}}'
)


_TYPED = _DECLARED.replace(
    b'"supported-stream-type":[]',
    b'"supported-stream-type":[{"uuid":"type-1","stream-type-name":"t","record-retention":"1440",'
    b'"log-storage-strategy":"LOG_STORAGE_STRATEGY_TRUNCATED"}]',
).replace(
    b'"stream-id":"one"',
    b'"stream-id":"one","supported-stream-type":{"supported-stream-type-uuid":"type-1"}',
)


def declared(at_s: int) -> Event:
    return ResponseReceived(at_s * _S, "/stream-context", 200, _DECLARED)


def opened(at_s: float, number: int, start: str = "") -> Event:
    at_us = int(at_s * _S)
    return ConnectionOpened(at_us, number, _STREAM, start, at_us - 1_000)


def closed(at_s: float, number: int, *, by_us: bool = False) -> Event:
    return ConnectionClosed(int(at_s * _S), number, "" if by_us else "it ended", by_us)


def refused(at_s: int, start: str = "", status: int = 404) -> Event:
    return ConnectionRefused(at_s * _S, _STREAM, start, status)


def idle(begins_s: int, number: int, lasts_s: int) -> list[Event]:
    """A connection on which nothing comes but our Pongs, until the provider closes it."""
    pongs = [
        PongSent(at_s * _S, number) for at_s in range(begins_s + 15, begins_s + lasts_s + 1, 15)
    ]
    return [opened(begins_s, number), *pongs, closed(begins_s + lasts_s, number)]


def broken(trace: Sequence[Event]) -> set[str]:
    return _named(judge(tapi_rules(), trace), "broken")


def _named(report: ConformanceReport, status: str) -> set[str]:
    """Of the rules about connections."""
    judged = {rule.id for rule in connections.RULES}
    found = (one for one in report.results if one.rule in judged)
    return {one.rule.removeprefix("tapi-") for one in found if one.status == status}


def test_idle_connections_that_end_alike_break_a_rule() -> None:
    trace = [declared(0), *idle(0, 1, 60), *idle(70, 2, 60), *idle(140, 3, 61)]
    assert broken(trace) == {"idle-kept"}
    # Twice may be chance, and after other times each something else.
    assert broken(trace[:-7]) == set()
    assert broken([declared(0), *idle(0, 1, 60), *idle(70, 2, 20), *idle(140, 3, 61)]) == set()


def test_a_longer_idle_connection_speaks_against_it() -> None:
    longer = [event for event in idle(0, 9, 90) if not isinstance(event, ConnectionClosed)]
    again = [closed(90, 9, by_us=True), *idle(100, 1, 60), *idle(170, 2, 60)]
    trace = [declared(0), *idle(-70, 8, 60), *longer, *again]
    assert broken(trace) == set()


def test_without_our_pongs_the_end_of_an_idle_connection_is_no_fault() -> None:
    rounds = [idle(begins_s, number, 60) for number, begins_s in enumerate((0, 70, 140), 1)]
    trace = [event for events in rounds for event in events if not isinstance(event, PongSent)]
    assert broken([declared(0), *trace]) == set()


def test_an_idle_connection_without_pongs_is_to_be_dropped() -> None:
    trace = [declared(0), opened(0, 1), PongsWithheld(1 * _S, 1), declared(100)]
    assert broken(trace) == {"pong-timeout"}
    assert broken([*trace[:-1], declared(80)]) == set()
    report = judge(tapi_rules(), [*trace[:-1], closed(31, 1)])
    assert "pong-timeout" in _named(report, "held")


def test_a_refusal_counts_where_it_comes_again_and_the_stream_is_listed() -> None:
    trace = [declared(0), refused(1), declared(2), refused(3), declared(4), refused(5)]
    assert broken(trace) == set()
    assert broken([*trace, declared(6)]) == {"connection-accepted"}
    assert broken([*trace, opened(6, 1), declared(7)]) == set()
    passing = [declared(0), *(refused(at_s, status=503) for at_s in range(1, 9)), declared(9)]
    assert broken(passing) == set()


def test_a_refused_token_is_proven_by_what_is_accepted_without_it() -> None:
    once = [refused(1, "t", 400), opened(2, 1), closed(3, 1, by_us=True)]
    twice = [refused(4, "u", 400), opened(5, 2), closed(6, 2, by_us=True)]
    assert broken([declared(0), *once, *twice]) == {"token-accepted"}
    assert broken([declared(0), *once]) == set()
    accepted = [opened(3, 3, "t"), closed(4, 3, by_us=True)]
    assert broken([declared(0), *once, *accepted, *twice]) == set()


def changed(at_s: float, number: int, offset: int, appended_s: float | None = None) -> Event:
    """A record comes; by default it was appended then."""
    appended = datetime.fromtimestamp(at_s if appended_s is None else appended_s, UTC)
    header = {
        "token": f"t{offset}",
        "tapi-context": "c",
        "record-type": "RECORD_TYPE_CREATE_UPDATE",
        "entity-key": f"e{offset}",
        "log-append-time-stamp": appended.isoformat().replace("+00:00", "Z"),
        "full-log-record-offset-id": [{"value-name": "offset", "value": str(offset)}],
    }
    body = json.dumps({"log-record-header": header, "log-record-body": {}}).encode()
    return MessageReceived(int(at_s * _S), number, body)


@pytest.mark.parametrize(("backed_up", "status"), [(True, "held"), (False, "not seen")])
def test_a_pause_that_the_provider_cannot_feel_shows_nothing(backed_up: bool, status: str) -> None:
    trace = [
        ResponseReceived(0, "/stream-context", 200, _TYPED),
        opened(1, 1),
        changed(2, 1, 1),
        ReadingPaused(3 * _S, 1),
        ReadingResumed(9 * _S, 1, backed_up),
        changed(9, 1, 2, 5),
        changed(10, 1, 3),
    ]
    assert "slow-kept" in _named(judge(tapi_rules(), trace), status)


@pytest.mark.parametrize(("backed_up", "found"), [(True, {"slow-kept"}), (False, set[str]())])
def test_an_end_in_a_pause_that_the_provider_cannot_feel_has_another_cause(
    backed_up: bool, found: set[str]
) -> None:
    trace = [ResponseReceived(0, "/stream-context", 200, _TYPED), opened(0, 9)]
    for number, at_s in enumerate((1, 21, 41), 1):
        paused = [ReadingPaused((at_s + 1) * _S, number)]
        resumed = ReadingResumed((at_s + 9) * _S, number, backed_up)
        trace += [opened(at_s, number), *paused, resumed, closed(at_s + 9.1, number)]
    assert broken([*trace, changed(65, 9, 5)]) == found


def test_many_short_connections_do_not_hide_what_the_long_one_shows() -> None:
    trace = [ResponseReceived(0, "/stream-context", 200, _TYPED), opened(0, 99), opened(0, 98)]
    trace += [changed(0.5, 98, offset) for offset in range(30)]
    number = 0
    for at_s in (1, 101, 201):
        for short_s in range(at_s, at_s + 40, 4):
            number += 1
            trace += [opened(short_s, number), closed(short_s + 1, number, by_us=True)]
        number += 1
        paused = [opened(at_s + 50, number), ReadingPaused((at_s + 51) * _S, number)]
        resumed = ReadingResumed((at_s + 59) * _S, number)
        trace += [*paused, resumed, closed(at_s + 59.1, number)]
    trace.append(closed(300, 98, by_us=True))
    assert broken(trace) == {"slow-kept"}


def test_a_first_connection_that_ends_where_the_second_comes() -> None:
    def displaced(at_s: int, first: int, after_s: int) -> list[Event]:
        both = [opened(at_s, first), opened(at_s + after_s, first + 1)]
        ends = closed(at_s + after_s + 0.1, first)
        return [*both, ends, closed(at_s + 20, first + 1, by_us=True)]

    twice = [declared(0), *displaced(0, 1, 10), *displaced(30, 3, 13)]
    assert broken(twice) == {"second-client"}
    assert broken(twice[:-4]) == set()
    beside = [opened(60, 5), opened(61, 6), closed(70, 5, by_us=True), closed(70, 6, by_us=True)]
    assert broken([declared(0), *beside, *twice[1:]]) == set()
    # Whatever ends a connection after ten seconds, it is not the second one.
    assert broken([declared(0), *displaced(0, 1, 10), *displaced(30, 3, 10)]) == set()


async def _probed(
    settings: ProviderSettings, faults: Faults, seconds: float
) -> tuple[list[Event], list[str], ConformanceReport]:
    """The trace of an active probing, what it has said, and the report."""
    trace: list[Event] = []
    said: list[str] = []
    context = topology_context("sndlib/polska", services=2)
    async with Provider(context, settings, faults=faults) as provider:
        options = {"endpoints": [provider.url], "pong_interval_s": 0.2, **ACTIVE}
        source = TapiSource(read_options(options, "source"))
        notes: list[str] = []
        await probe_source(
            source, seconds, trace.append, notes.append, active=True, say=said.append
        )
    return trace, said, judge(tapi_rules(), trace)


@pytest.mark.asyncio
async def test_an_active_probing_holds_its_pongs_and_is_dropped() -> None:
    settings = ProviderSettings(pong_timeout_s=0.5)
    trace, said, report = await _probed(settings, Faults(storm_changes_per_s=20.0), 4.0)
    assert _named(report, "broken") == set()
    assert "pong-timeout" in _named(report, "held")
    assert len([text for text in said if "holds its Pongs" in text]) == 2
    withheld = {one.connection for one in trace if isinstance(one, PongsWithheld)}
    ended = {one.connection for one in trace if isinstance(one, ConnectionClosed) and not one.by_us}
    # Each connection but those lives by its Pongs.
    assert len(withheld) == 2
    assert ended == withheld
    assert any(isinstance(one, PongSent) for one in trace)
    paused = [one for one in trace if isinstance(one, ReadingPaused)]
    resumed = [one for one in trace if isinstance(one, ReadingResumed)]
    assert len(paused) == len(resumed) == 2


@pytest.mark.asyncio
async def test_an_active_probing_meets_a_provider_of_one_client() -> None:
    faults = Faults(deviates="one-client", storm_changes_per_s=20.0)
    trace, _, report = await _probed(ProviderSettings(), faults, 2.0)
    assert _named(report, "broken") == {"second-client"}
    assert report.conforms
    assert any(isinstance(one, ConnectionRefused) and one.status == 403 for one in trace)


@pytest.mark.parametrize(
    ("storage", "retention", "details", "whole_for_s", "place_kept_s"),
    [
        ("COMPACTED", "FOREVER", ("1", "60"), 60.0, 3_600.0),
        ("COMPACTED", "FOREVER", ("60", "60"), inf, inf),
        ("TRUNCATED", "1440", None, 86_400.0, 86_400.0),
        ("FULL_HISTORY", "FOREVER", None, inf, inf),
        ("TRUNCATED", "a day", None, None, None),
    ],
)
def test_how_long_a_log_keeps_what_is_decided_by_its_type(
    storage: str,
    retention: str,
    details: tuple[str, str] | None,
    whole_for_s: float | None,
    place_kept_s: float | None,
) -> None:
    members: dict[str, Any] = {
        "record-retention": retention,
        "log-storage-strategy": f"LOG_STORAGE_STRATEGY_{storage}",
    }
    if details is not None:
        delay, tombstones = details
        members["compacted-log-details"] = {
            "compaction-delay": delay,
            "tombstone-retention": tombstones,
        }
    type_ = DeclaredType(members, "2.1.3")
    assert (type_.whole_for_s, type_.place_kept_s) == (whole_for_s, place_kept_s)


@pytest.mark.asyncio
async def test_a_pause_that_the_provider_does_not_feel_is_noted() -> None:
    notes: list[str] = []
    context = topology_context("sndlib/polska", services=2)
    async with Provider(context, ProviderSettings()) as provider:
        source = TapiSource(read_options({"endpoints": [provider.url]}, "source"))
        await probe_source(source, 1.0, lambda _: None, notes.append, active=True)
    unfelt = {note.partition(":")[0] for note in notes if "did not feel a slow client" in note}
    # What the log had at first may wait all the while, on a machine with other work.
    assert "network" in unfelt


SLOW = {
    "": set[str](),
    "drops-slow": {"slow-kept"},
    "overflows": {"slow-lossless", "at-least-once"},
}
"""Deviation → what is found of it by somebody who reads slowly. `together` and `keeps-lost` are
found in traces alone: on loopback, no probe has shown them."""


# A client is slow for seconds, over and over again, until the provider feels it.
@pytest.mark.long
@pytest.mark.asyncio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("deviates", SLOW)
async def test_what_a_slow_client_meets_is_named_over_sockets(deviates: str) -> None:
    settings = ProviderSettings(pong_timeout_s=5.0)
    faults = Faults(deviates=deviates, storm_changes_per_s=120.0)
    trace, _, report = await _probed(settings, faults, 40.0)
    assert any(isinstance(one, ReadingResumed) and one.backed_up for one in trace)
    found = {one.rule.removeprefix("tapi-"): one.reason for one in report.broken}
    assert bool(found) == bool(SLOW[deviates]), found
    # That a record is nowhere is shown only where somebody else has read it.
    assert found.keys() <= SLOW[deviates], found
    assert all(one.evidence for one in report.broken)
