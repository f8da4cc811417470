"""What the changes of a CHANGE_ONLY stream (TR-548 3.8.2.2) amount to, by a plain loop: each row as
the whole statement that a provider of whole entities would have made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.instep_spark.lake.log_kit import Change, Row
from tests.instep_spark.lake.model_kit import newer

Facts = dict[str, int]
"""Values by the part of the entity that they are about; by "" what is about none."""


@dataclass
class Entity:
    """What has been read of one entity."""

    stated: dict[str, tuple[Row, Facts]] = field(default_factory=dict)
    """By key: the last statement, and what it amounts to with those of its attempt before it."""
    ended: dict[str, Row] = field(default_factory=dict)
    """By key: the end of a part. What comes later and is older changes nothing."""
    last: Change | None = None

    def knows_better(self, row: Row) -> bool:
        """Whether a newer statement of the key is known, or a newer end of what it is under."""
        stated = [one for key, (one, _) in self.stated.items() if key == row.key]
        ended = [one for key, one in self.ended.items() if f"{row.key}/".startswith(f"{key}/")]
        return any(outdates(one, row) for one in stated + ended)

    def facts(self, base: str) -> Facts:
        """What all statements amount to."""
        found: Facts = {}
        for key in sorted(self.stated, key=lambda key: key != base):
            found |= self.stated[key][1]
        return found


def outdates(known: Row, row: Row) -> bool:
    return known.lineage == row.lineage and newer(known, row)


def whole_statements(rows: Sequence[Row]) -> list[Row]:
    """The rows with whole statements in place of changes; those that change nothing are missing."""
    entities: dict[str, Entity] = {}
    began: dict[int, int] = {}
    stated: list[Row] = []
    for row in rows:
        if not row.key:
            if row.kind == "ATTEMPT":
                began[row.attempt] = row.committed_at
            elif row.kind == "SWEEP":
                stated += _swept(entities, row, began[row.attempt])
            stated.append(row)
            continue
        base = row.key.partition("/")[0]
        if row.ends and base not in entities:
            continue
        entity = entities.setdefault(base, Entity())
        if _changes(entity, row):
            last = entity.stated.get(row.key, (row, {}))[0]
            body = comparable(last.body) if row.detector else body_of(base, entity.facts(base))
            stated.append(_whole(entity, row, base, body))
            if not entity.stated:
                del entities[base]
    return stated


def _changes(entity: Entity, row: Row) -> bool:
    """Apply a row; whether it says anything about the entity."""
    if row.ends and "/" not in row.key:
        return _end_all(entity, row)
    if entity.knows_better(row):
        return not row.ends and _read_again(entity, row)
    if row.ends:
        return bool(entity.stated) and _end(entity, row)
    _state(entity, row, facts_of(row))
    return True


def _state(entity: Entity, row: Row, facts: Facts) -> None:
    base = row.key.partition("/")[0]
    for key, end in entity.ended.items():
        if outdates(end, row):
            facts = _without(facts, key.removeprefix(f"{base}/"))
    if (before := entity.stated.get(row.key)) is not None:
        was = before[0]
        if (was.lineage, was.attempt) == (row.lineage, row.attempt):
            facts = before[1] | facts
    entity.ended.pop(row.key, None)
    entity.stated[row.key] = (row, facts)


def _read_again(entity: Entity, row: Row) -> bool:
    """Note that an attempt has read a key, though an older statement: nothing is compacted, so what
    follows adds to what is known.
    """
    was, facts = entity.stated.get(row.key, (row, {}))
    if was.attempt == row.attempt or not outdates(was, row):
        return False
    entity.stated[row.key] = (replace(was, attempt=row.attempt), facts)
    return True


def _end_all(entity: Entity, row: Row) -> bool:
    """Apply the end of an entity, which leaves what was stated after it. False where it changes
    nothing.
    """
    count = len(entity.stated)
    entity.stated = {key: one for key, one in entity.stated.items() if outdates(one[0], row)}
    entity.ended = {
        key: one for key, one in entity.ended.items() if entity.stated and outdates(one, row)
    }
    return len(entity.stated) < count


def _end(entity: Entity, row: Row) -> bool:
    """Apply the end of a part; false for one that names nothing or has been applied."""
    part = row.key.partition("/")[2]
    named = False
    for key, (one, facts) in list(entity.stated.items()):
        if outdates(one, row):
            continue
        left = _without(facts, part)
        if f"{key}/".startswith(f"{row.key}/"):
            del entity.stated[key]
        elif left != facts:
            entity.stated[key] = (one, left)
        else:
            continue
        named = True
    before = entity.ended.get(row.key)
    if named or (before is not None and before.lineage != row.lineage):
        entity.ended[row.key] = row
        return True
    if before is None or before.attempt == row.attempt:
        return False
    # The same end, read again.
    entity.ended[row.key] = replace(before, attempt=row.attempt)
    return True


def _without(facts: Facts, part: str) -> Facts:
    return {name: value for name, value in facts.items() if not f"{name}/".startswith(f"{part}/")}


def _whole(entity: Entity, row: Row, base: str, body: str | None) -> Change:
    """The row as a statement of all of the entity. Its place is the newest that was read of it in
    this log.
    """
    assert isinstance(row, Change)
    places = [row, *(one for one, _ in entity.stated.values()), *entity.ended.values()]
    if entity.last is not None:
        places.append(entity.last)
    ends = not entity.stated
    entity.last = replace(
        row,
        key=base,
        kind=row.kind if ends else "CREATE_UPDATE",
        ends=ends,
        content=None if ends and not row.detector else body,
        partition="",
        offset=-1,
        appended_at=max(one.appended_at for one in places if one.lineage == row.lineage),
        whole=True,
    )
    return entity.last


def _swept(entities: dict[str, Entity], sweep: Row, began: int) -> Iterator[Change]:
    """Forget what the attempt has not stated; the entities of which parts are missing since."""
    for base, entity in list(entities.items()):
        last = entity.last
        if last is None or last.attempt < sweep.attempt:
            del entities[base]
            continue
        gone = [
            key
            for key, (row, _) in entity.stated.items()
            if key != base and row.attempt < sweep.attempt
        ]
        for key in gone:
            del entity.stated[key]
        for key in [key for key, row in entity.ended.items() if row.attempt < sweep.attempt]:
            del entity.ended[key]
        body = body_of(base, entity.facts(base))
        if gone and body != last.content:
            at = max(last.appended_at, began)
            entity.last = replace(last, ordinal=sweep.ordinal, appended_at=at, content=body)
            yield entity.last


def content_of(base: str, stated: Facts) -> str:
    """A skeleton of the entity with what is stated."""
    content: dict[str, Any] = {"uuid": base}
    for part, value in stated.items():
        name, _, number = part.partition("/")
        if number:
            content.setdefault(name, []).append({"local-id": number, "speed": value})
        elif part:
            content[name] = {"state": value}
        else:
            content["value"] = value
    return json.dumps(content)


def facts_of(row: Row) -> Facts:
    """What a row states, by part."""
    if row.body is None or row.detector:
        return {}
    content: Mapping[str, Any] = json.loads(row.body)
    facts: Facts = {f"port/{one['local-id']}": one["speed"] for one in content.get("port", ())}
    facts |= {name: content[name]["state"] for name in ("admin", "label") if name in content}
    if "value" in content:
        facts[""] = content["value"]
    return facts


def body_of(base: str, facts: Facts) -> str | None:
    """The whole entity."""
    return comparable(content_of(base, facts))


def comparable(body: str | None) -> str | None:
    """Members and elements of a body have no order, and no elements are no member."""
    if body is None:
        return None
    content = json.loads(body)
    if ports := content.pop("port", None):
        content["port"] = sorted(ports, key=lambda one: str(one["local-id"]))
    return json.dumps(content, sort_keys=True)
