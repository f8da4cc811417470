"""The derivations of TAPI keep the promises of their port."""

from __future__ import annotations

import pytest

from instep.config.derivations import find_derivations, ready_tables, table_derivations
from instep.model.records import Record, RecordType
from instep.testing import DERIVATION_PROMISES, check_derivation
from instep_tapi.derivations import alarms, measurements, references
from tests.instep_sql.alarms.alarms_kit import header_end, statement
from tests.instep_sql.measurements.measurements_kit import (
    CURRENT_ADDRESS,
    current,
    history,
    record,
)
from tests.instep_sql.references import references_kit

LOGS: dict[str, list[Record]] = {
    "alarms": [
        statement(10),
        statement(12, severity="MAJOR"),
        statement(13, key="d2"),
        statement(14, "CLEAR"),
        statement(20, "INTERMITTENT"),
        header_end(30, RecordType.TOMBSTONE),
        statement(40, None, key="e", **{"condition-detector-type": "EVENT_DETECTOR"}),
    ],
    "measurements": [
        record("PM_CURRENT_DATA", 2_000, current(30, 5), parents=CURRENT_ADDRESS[:1]),
        record("PM_HISTORY_DATA", 2_600, history(45), parents=CURRENT_ADDRESS),
        record("PM_CURRENT_DATA", 2_700, current(30, 15), parents=CURRENT_ADDRESS[:1]),
        record("PM_HISTORY_DATA", 2_800, {}, kind=RecordType.DELETE),
    ],
    "references": [
        references_kit.statement("s", "n", "NODE", {"uuid": "N"}, "topology-uuid:T"),
        references_kit.statement("s", "l", "LINK", {"node": [{"node-uuid": "N"}]}),
        references_kit.end("s", "l", 3),
    ],
}
OURS = (alarms.derivation, measurements.derivation, references.derivation)


def test_they_are_found_by_their_entry_points() -> None:
    assert table_derivations() == list(OURS)
    assert len(ready_tables()) == 8
    assert len(find_derivations()) == 12


@pytest.mark.asyncio
@pytest.mark.parametrize("derivation", OURS, ids=lambda one: one.name)
@pytest.mark.parametrize("promise", DERIVATION_PROMISES)
async def test_they_keep_each_promise(derivation: alarms.Alarms, promise: str) -> None:
    await check_derivation(derivation, LOGS[derivation.name], only=promise)
