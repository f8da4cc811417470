"""An entity composed of a base and the changes stated after it (TR-548 3.8.2.2), without any SQL.

The specification has not developed CHANGE_ONLY fully. What is assumed here:

- the first statement of a key in an alignment attempt is whole for that key, later ones are merged;
- a part's key begins with the entity's key, or its body names the entity's uuid;
- the composed body is the base with all parts merged into it in log order;
- the end of a part's key takes the part and all under it.
"""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from instep.fold import newer
from instep.merge import is_under, merge, without
from instep.position import Position
from instep.records import Kind, Record

__all__ = ["Composition", "Part", "UnresolvedError", "decode_object"]


class UnresolvedError(Exception):
    """A change that names nothing in the entity, or is no JSON object."""


class Part(msgspec.Struct, frozen=True):
    """What one log key states of an entity; `record.body` is all it has stated so far."""

    record: Record
    lineage: int
    attempt: int


class Composition:
    """One entity: its parts by log key. The part under the entity's own key is the base."""

    def __init__(self, key: str, parts: list[Part]) -> None:
        self.key = key
        self.parts = {part.record.key: part for part in parts}

    def state(self, record: Record, position: Position) -> Record | None:
        """Apply a statement; returns the whole record it amounts to.

        None where a newer one is known (A3). Raises `UnresolvedError`; `RecursionError` for a
        body too deep to merge; the entity is then as before.
        """
        if record.whole:
            record = replace(record, key=self.key)
        stored = self.parts.get(record.key)
        if stored is not None and _is_newer(stored, record, position):
            return None
        decode_object(record.body)
        before = dict(self.parts)
        if record.whole:
            # It states everything: changes before it are in it already.
            self.parts = {
                key: part for key, part in self.parts.items() if _is_newer(part, record, position)
            }
        elif (
            stored is not None
            and stored.lineage == position.lineage
            and stored.attempt == position.attempt
        ):
            merged = merge(decode_object(stored.record.body), decode_object(record.body))
            record = replace(record, body=msgspec.json.encode(merged))
        self.parts[record.key] = Part(record, position.lineage, position.attempt)
        try:
            return self.composed(record, position)
        except RecursionError:
            self.parts = before
            raise

    def end(self, record: Record, position: Position) -> Record | None:
        """Apply the end of the entity."""
        if any(_is_newer(part, record, position) for part in self.parts.values()):
            return None
        self.parts.clear()
        return replace(record, key=self.key, whole=True)

    def end_part(self, record: Record, position: Position, *, ended_before: bool) -> Record | None:
        """Apply the end of a part or sub-tree. Raises `UnresolvedError` where the key names
        neither.
        """
        stored = self.parts.get(record.key)
        if stored is not None and _is_newer(stored, record, position):
            return None
        if stored is None:
            if ended_before:
                return None
            self._cut(record.key)
        self.parts = {
            key: part
            for key, part in self.parts.items()
            if key == self.key or not (key == record.key or is_under(key, record.key))
        }
        return self.composed(replace(record, kind=Kind.CREATE_UPDATE, ends=False), position)

    def _cut(self, key: str) -> None:
        base = self.parts.get(self.key)
        path = key[len(self.key) :] if is_under(key, self.key) else key
        left = None if base is None else without(decode_object(base.record.body), path)
        if base is None or left is None:
            raise UnresolvedError(f"the end of {key!r} names nothing in entity {self.key!r}")
        body = msgspec.json.encode(left)
        self.parts[self.key] = Part(replace(base.record, body=body), base.lineage, base.attempt)

    def prune(self, attempt: int) -> None:
        """Drop the changes that attempts from `attempt` on have not stated; the base stays."""
        self.parts = {
            key: part
            for key, part in self.parts.items()
            if key == self.key or part.attempt >= attempt
        }

    def body(self) -> bytes:
        """The base with all parts merged into it, in log order; verbatim where there is but one."""
        rest = [part.record for key, part in self.parts.items() if key != self.key]
        base = self.parts.get(self.key)
        ordered = ([] if base is None else [base.record]) + sorted(rest, key=_LOG_ORDER)
        if len(ordered) == 1:
            return ordered[0].body
        value: Any = {}
        for record in ordered:
            value = merge(value, decode_object(record.body))
        return msgspec.json.encode(value)

    def composed(self, record: Record, position: Position) -> Record:
        """The whole record that stands for the entity: placed where its newest part is."""
        places = [part.record for part in self.parts.values() if part.lineage == position.lineage]
        newest = max(places, key=_LOG_ORDER, default=record)
        base = self.parts.get(self.key)
        first = record if base is None else base.record
        return replace(
            record,
            key=self.key,
            token=newest.token,
            partition=newest.partition,
            offset=newest.offset,
            appended_at_us=newest.appended_at_us,
            entity_class=record.entity_class or first.entity_class,
            uuid=record.uuid or first.uuid,
            body=self.body(),
            whole=True,
        )


def _is_newer(part: Part, record: Record, position: Position) -> bool:
    return part.lineage == position.lineage and newer(part.record, record)


def _in_log_order(one: Record, other: Record) -> int:
    return newer(one, other) - newer(other, one)


_LOG_ORDER: Final = cmp_to_key(_in_log_order)


def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a statement. Raises `UnresolvedError` for anything else."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnresolvedError(f"the change is no JSON object: {error}") from None
