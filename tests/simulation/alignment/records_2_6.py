"""The records of a provider that speaks TAPI 2.6, of a log of whole entities (TR-548 v3.2, 5.2)."""

from __future__ import annotations

import json
from typing import Any

from instep_tapi.facts.names import LogRecordType
from instep_tapi_provider.log import LogRecord
from tests.simulation.alignment.provider import SimLog

__all__ = ["as_2_6"]

_CREATE_UPDATE = b'"RECORD_TYPE_CREATE_UPDATE"'


def as_2_6(record: LogRecord, log: SimLog, records: str, *, young: bool) -> bytes:
    """The record with the type that a provider of 2.6 gives it: CREATE, UPDATE, or, where the log
    is not compacted yet and `records` are change-only, a CHANGE.
    """
    if record.kind is not LogRecordType.CREATE_UPDATE:
        return record.data
    before = log.last_before(record.key, record.offset - 1)
    if before is None or before.kind is not LogRecordType.CREATE_UPDATE or _ends(before):
        return record.data.replace(_CREATE_UPDATE, b'"RECORD_TYPE_CREATE"', 1)
    if records != "change-only" or not young or _ends(record):
        return record.data.replace(_CREATE_UPDATE, b'"RECORD_TYPE_UPDATE"', 1)
    whole, known = json.loads(record.data), json.loads(before.data)
    entity, member = _entity(whole)
    old, _ = _entity(known)
    whole["log-record-body"][member] = {"uuid": entity["uuid"], **_changed(entity, old)}
    whole["log-record-header"]["record-type"] = "RECORD_TYPE_CHANGE"
    return json.dumps(whole, separators=(",", ":")).encode()


def _ends(record: LogRecord) -> bool:
    return b'"CLEAR"' in record.data


def _entity(record: Any) -> tuple[dict[str, Any], str]:
    body = record["log-record-body"]
    member = next(name for name in ("node", "condition-detector") if name in body)
    return body[member], member


def _changed(entity: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """What has changed, with the skeleton that leads to it; a list is stated entire."""
    found: dict[str, Any] = {}
    for name, value in entity.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            if inner := _changed(value, old[name]):
                found[name] = inner
        elif old.get(name) != value:
            found[name] = value
    return found
