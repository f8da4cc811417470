"""Deliberate mistakes in what is made of a provider's answers and records. A test must find each:
its oracle proves only what it can find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from instep.alignment.machine import Alignment
from instep.model.batches import Batch
from instep.model.records import Record
from instep.model.streams import Mode
from instep.ports.lake import EnvelopeColumns
from instep.runtime.streams.read_ahead import ReadAhead
from instep.runtime.streams.worker import StreamWorker
from instep_spark.derivations import read_envelopes
from instep_sql.audit.reading import MarksByKey, MarksByUuid
from instep_sql.engine.sqlite import Sqlite
from instep_sql.entities import entity_rows, journal, key_reconciliation
from instep_tapi.facts import containment, times
from instep_tapi.restconf import baseline_rows
from instep_tapi.wire import context_tree, record_body

__all__ = ["MUTATIONS", "applied"]

Change = tuple[Any, str, Any]
"""Object or module, attribute, new value."""

_BASELINE: Final = "tests/instep_tapi/restconf/test_baseline.py"
_JOINED: Final = "tests/instep_sql/entities/test_key_reconciliation.py"
_AUDITED: Final = "tests/instep_sql/audit/test_marks_baseline.py"
_JOURNAL: Final = "tests/instep_sql/entities/test_journal.py"
_DECODED: Final = "tests/instep_tapi/wire/test_decoder.py"


def _cut_whatever_has_a_uuid() -> list[Change]:
    kept = context_tree._kept

    def cuts(value: Any, member: str, parent: str, _cut: frozenset[str]) -> Any:
        return kept(value, member, parent, containment.GLOBAL_CLASSES | containment.LOCAL_CLASSES)

    return [(context_tree, "_kept", cuts)]


def _no_identifier_where_it_is_cut() -> list[Change]:
    kept = context_tree._kept

    def cuts(value: Any, *where: Any) -> Any:
        if isinstance(value, list):
            found = [kept(item, *where) for item in value]
            return [item for item in found if item != {"uuid": (item or {}).get("uuid")}]
        return kept(value, *where)

    return [(context_tree, "_kept", cuts)]


def _reference_is_a_statement() -> list[Change]:
    def anywhere(member: str, _parent: str) -> str | None:
        name = member.rpartition(":")[2]
        return containment._ANYWHERE.get(name) or {"node-edge-point": "NODE_EDGE_POINT"}.get(name)

    return [(context_tree, "contained_class", anywhere)]


def _unlike_statements_are_one() -> list[Change]:
    pages = baseline_rows.page_records

    def first_ones(found: Sequence[Any], *rest: Any) -> Iterator[Record]:
        first = {(one.entity_class, one.identity): one for one in reversed(found)}
        return pages(list(first.values()), *rest)

    return [(baseline_rows, "page_records", first_ones)]


def _joined_whatever_the_place() -> list[Change]:
    return [(key_reconciliation._Parents, "places", frozenset())]


def _joined_whatever_the_class() -> list[Change]:
    def of(self: Any, record: Record) -> list[Any]:
        found = self.by_uuid.get(record.uuid or record.key, [])[:1]
        return found or [row for row in [self.by_key.get(record.key)] if row]

    return [(key_reconciliation._Rows, "of", of)]


def _baseline_compared_by_time() -> list[Change]:
    replace = Batch.replace

    def dated(self: Batch, **changes: Any) -> Batch:
        return replace(self, **changes | {"lineage": self.position.lineage})

    def page(self: Alignment, rows: list[Record]) -> Batch:
        return dated(baseline_page(self, rows))

    baseline_page = Alignment.baseline_page
    return [(Alignment, "baseline_page", page)]


def _any_end_owes_a_baseline() -> list[Change]:
    return [
        (key_reconciliation, "_may_be_of_a_baseline", lambda *_: True),
        (key_reconciliation, "_owes_baseline", lambda *_: True),
    ]


def _baseline_writes_what_it_has() -> list[Change]:
    return [(key_reconciliation, "_completed", lambda record, *_: record)]


def _bytes_are_compared() -> list[Change]:
    return [(journal, "alike", lambda left, right, _contained: left == right)]


def _ambiguous_is_marked() -> list[Change]:
    marks = MarksByUuid.marks

    def all_of_them(self: MarksByUuid, connection: Any, records: Sequence[Record]) -> Any:
        plain = [
            one if one.token or one.key == one.uuid else msgspec.structs.replace(one, key=one.uuid)
            for one in records
        ]
        return marks(self, connection, plain)

    return [(MarksByUuid, "marks", all_of_them), (MarksByKey, "unplaced_ends", 0)]


def _forgetful_log_is_trusted() -> list[Change]:
    return [("instep_tapi.endpoints.selection", "log_mode", lambda *_, **__: Mode.LOG)]


def _severity_overrules_the_state() -> list[Change]:
    def clear(content: bytes, _deviations: list[str]) -> bool:
        return b"CLEAR" in content

    where = (record_body, "instep_tapi.wire.lazy_columns")
    return [(module, "states_end", clear) for module in where]


def _journal_without_envelope() -> list[Change]:
    add = Sqlite.add_changes

    def bare(self: Sqlite, connection: Any, no: int, now_us: int, rows: Sequence[Any]) -> None:
        add(self, connection, no, now_us, [(*row[:6], b"", *row[7:]) for row in rows])

    return [(Sqlite, "add_changes", bare)]


def _header_members_dropped() -> list[Change]:
    def kept(envelope: Any, _header: Any) -> Any:
        return envelope

    return [
        ("instep_tapi.wire.decoder", "with_header", kept),
        ("instep_tapi.wire.lazy_columns", "_with_rest", kept),
    ]


def _message_under_way_taken_for_silence() -> list[Change]:
    def until_its_end(self: ReadAhead) -> tuple[float, float]:
        taken = self._taken_s is not None
        until_s = self._received_s if taken else self._now() - self._feed.unheard_s
        return self._listens_since_s, until_s

    return [(ReadAhead, "silence_s", until_its_end)]


def _retentions_read_once() -> list[Change]:
    return [(StreamWorker, "_adopt", lambda *_: None)]


def _uuid_left_to_the_source() -> list[Change]:
    def given(_classes: Any, _bodies: Any, uuids: Sequence[str]) -> Sequence[str]:
        return uuids

    return [(entity_rows, "stated_uuids", given)]


def _hour_24_is_of_its_own_day() -> list[Change]:
    return [(times, "_DAY_US", 0)]


def _flat_event_times_not_read() -> list[Change]:
    def nested(envelopes: Sequence[bytes]) -> EnvelopeColumns:
        read = read_envelopes(envelopes)
        pairs = zip(envelopes, read.event_times, strict=True)
        times = [time if b"approx-date-and-time" in one else None for one, time in pairs]
        return EnvelopeColumns(times, read.parent_addresses)

    return [("instep_spark.landing.arrow_rows", "read_envelopes", nested)]


def _parent_address_not_missed() -> list[Change]:
    where = (record_body, "instep_tapi.wire.lazy_columns")
    return [(module, "CONTAINED_CLASSES", frozenset()) for module in where]


MUTATIONS: Final[dict[str, tuple[Callable[[], list[Change]], str]]] = {
    "cut whatever has a uuid": (_cut_whatever_has_a_uuid, f"{_BASELINE} -k nothing_is_cut"),
    "no identifier where it is cut": (_no_identifier_where_it_is_cut, f"{_BASELINE} -k reference"),
    "a reference is a statement": (_reference_is_a_statement, f"{_BASELINE} -k reference"),
    "unlike statements are one": (_unlike_statements_are_one, f"{_BASELINE} -k differ"),
    "joined whatever the place": (_joined_whatever_the_place, f"{_JOINED} -k differently"),
    "joined whatever the class": (_joined_whatever_the_class, f"{_JOINED} -k two_classes"),
    "baseline compared by time": (
        _baseline_compared_by_time,
        "tests/instep/alignment/test_machine_lag.py -k a14",
    ),
    "any end owes a baseline": (_any_end_owes_a_baseline, f"{_JOINED} -k unknown_alarm"),
    "a baseline writes what it has": (_baseline_writes_what_it_has, f"{_JOINED} -k never_writes"),
    "bytes are compared": (_bytes_are_compared, f"{_JOINED} -k contained_entities"),
    "rows of one uuid are marked": (_ambiguous_is_marked, f"{_AUDITED} -k share_a_uuid"),
    "a repair writes what it has": (_baseline_writes_what_it_has, f"{_AUDITED} -k identifies"),
    "a forgetful log is trusted": (
        _forgetful_log_is_trusted,
        "tests/instep_tapi/endpoints/test_selection.py -k forgets",
    ),
    "severity overrules the state": (_severity_overrules_the_state, f"{_DECODED} -k overrules"),
    "journal without envelope": (_journal_without_envelope, f"{_JOURNAL} -k event_time"),
    "message under way taken for silence": (
        _message_under_way_taken_for_silence,
        "tests/instep/runtime/streams/test_read_ahead.py -k may_have_begun",
    ),
    "retentions read once": (
        _retentions_read_once,
        "tests/instep/runtime/test_consumer.py -k retentions",
    ),
    "uuid left to the source": (
        _uuid_left_to_the_source,
        "tests/instep_sql/entities/test_entity_rows.py -k uuid_is_filled",
    ),
    "hour 24 is of its own day": (
        _hour_24_is_of_its_own_day,
        "tests/instep_tapi/facts/test_times.py -k end_of_a_day",
    ),
    "flat event times not read": (
        _flat_event_times_not_read,
        "tests/instep_spark/landing/test_sink.py -k event_times",
    ),
    "parent-address not missed": (_parent_address_not_missed, f"{_DECODED} -k parent_address"),
    "header members dropped": (_header_members_dropped, f"{_DECODED} -k header_states"),
}
"""Name to what it changes, and the test that finds it."""


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The SDK with this mistake in it."""
    with ExitStack() as stack:
        for target, attribute, value in MUTATIONS[name][0]():
            if isinstance(target, str):
                stack.enter_context(patch(f"{target}.{attribute}", value))
            else:
                stack.enter_context(patch.object(target, attribute, value))
        yield
