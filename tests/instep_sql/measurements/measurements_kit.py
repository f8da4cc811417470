"""Statements of pm-current-data, pm-history-data and oam-jobs, as tapi-oam has them."""

from __future__ import annotations

import json
from typing import Any

from instep.model.records import Record, RecordType
from tests.instep_sql.store_kit import STREAM

QUARTER = {"value": "15", "unit": "MINUTES"}
JOB = "11111111-1111-4111-8111-111111111111"
CURRENT_ADDRESS = [f"oam-job-uuid:{JOB}", "pm-current-data-local-id:c1"]


def record(
    entity_class: str,
    at_s: int,
    body: dict[str, Any],
    *,
    key: str = "k",
    parents: list[str] | None = None,
    kind: RecordType = RecordType.CREATE_UPDATE,
) -> Record:
    """A record appended at `at_s`; `parents` is its parent-address."""
    return Record(
        STREAM,
        key,
        kind,
        f"t{at_s}{key}{kind.name}",
        at_s * 1_000_000,
        "0",
        at_s,
        entity_class,
        json.dumps(body).encode() if kind is RecordType.CREATE_UPDATE else b"",
        json.dumps({"parent-address": parents or []}).encode(),
        ends=kind is not RecordType.CREATE_UPDATE,
    )


def clock(minutes: int) -> str:
    """A time in 1970, as RFC 3339 has it."""
    return f"1970-01-01T{minutes // 60:02}:{minutes % 60:02}:00Z"


def history(minutes: int, **members: Any) -> dict[str, Any]:
    """A pm-history-data of the quarter of an hour that ends then."""
    return {
        "local-id": f"h{minutes}",
        "granularity-period": QUARTER,
        "period-end-time": clock(minutes),
        "suspect-interval-flag": False,
        **members,
    }


def current(begin: int, elapsed: int | None = None, **members: Any) -> dict[str, Any]:
    """A pm-current-data of the quarter of an hour that begins then, in minutes."""
    if elapsed is not None:
        members["elapsed-time"] = {"period": [{"value": str(elapsed), "unit": "MINUTES"}]}
    return {
        "local-id": "c1",
        "granularity-period": QUARTER,
        "timestamp": clock(begin),
        **members,
    }
