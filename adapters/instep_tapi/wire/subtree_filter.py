"""Which entities stand in chosen subtrees of the context (TR-548 3.12, 3.10.1): pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from instep.model.records import Record
from instep_tapi.wire.framing import BadRecord
from instep_tapi.wire.record_body import parent_address_of, uuid_of

__all__ = ["is_below"]


def is_below(record: Record, roots: Collection[str]) -> bool:
    """Whether a record is kept where only the subtrees of these entities, by uuid, are asked for.

    An entity is kept if it is one of them or its parent-address names one. What states no
    parent-address that can be read, as alarms and services do not, is kept too: nobody knows
    whether it is below. So are ends: what is not stored ends once more without effect.
    """
    if record.ends:
        return True
    try:
        address = parent_address_of(record.envelope) if record.envelope else []
    except (msgspec.MsgspecError, RecursionError):
        return True
    if not address or any(element.partition(":")[2] in roots for element in address):
        return True
    try:
        return (record.uuid or uuid_of(record.body, record.envelope)) in roots
    except BadRecord:
        return True
