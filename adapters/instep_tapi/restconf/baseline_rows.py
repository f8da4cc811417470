"""States the entities of a RESTCONF answer as a stream would, each entity once (A13). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from instep.model.records import Record, RecordType
from instep_tapi.facts.containment import GLOBAL_CLASSES, LOCAL_CLASSES
from instep_tapi.restconf.json_bounds import decode_bounded
from instep_tapi.wire.context_tree import Entity, entities

__all__ = ["BaselineScope", "UnreadableAnswer", "page_records", "pages_of"]

PAGE_RECORDS: Final = 1_000


class BaselineScope(msgspec.Struct, frozen=True):
    """What a baseline states."""

    stream: str
    opened_at_us: int
    classes: frozenset[str]
    everything: bool
    """Whether classes that 2.1.3 does not know are stated, too."""
    cut: frozenset[str]
    """Classes of which entities have records of their own: they are cut out of what contains them.
    """


class UnreadableAnswer(Exception):
    """An answer that cannot be read as current state; `retriable` where another may be."""

    def __init__(self, text: str, *, retriable: bool) -> None:
        super().__init__(text)
        self.retriable = retriable


def pages_of(
    body: bytes, wanted: BaselineScope, seen: set[tuple[str, str]]
) -> Iterator[list[Record]]:
    """Pages of records of an answer; entities that are `seen`, by class and identity, are stated
    already. Raises `UnreadableAnswer`.
    """
    try:
        document = decode_bounded(body)
    except ValueError as error:
        text = f"the answer is cut short or no JSON: {error}"
        raise UnreadableAnswer(text, retriable=True) from None
    try:
        found = [
            entity
            for entity in entities(document, wanted.cut)
            if entity.entity_class in wanted.classes
            or (wanted.everything and entity.entity_class not in LOCAL_CLASSES | GLOBAL_CLASSES)
        ]
    except ValueError as error:
        raise UnreadableAnswer(str(error), retriable=False) from None
    records = page_records(found, wanted.stream, wanted.opened_at_us, seen)
    while page := list(islice(records, PAGE_RECORDS)):
        yield page


def page_records(
    found: list[Entity], stream: str, opened_at_us: int, seen: set[tuple[str, str]]
) -> Iterator[Record]:
    """One record for each class and uuid; where statements differ, one for each place (A13).

    The key is the uuid. It is the whole address of statements that differ, of which the
    parent-address of a record shows the one that it is about, and where two classes share a uuid.
    Statements that are alike are one, and the envelope names the further places.
    """
    statements: dict[tuple[str, str], list[Entity]] = {}
    for entity in found:
        statements.setdefault((entity.entity_class, entity.identity), []).append(entity)
    classes = Counter(identity for _, identity in statements.keys() | seen)
    for named, several in statements.items():
        if named in seen:
            continue
        seen.add(named)
        # An identifier alone says nothing beside a statement.
        whole = [entity for entity in several if not entity.is_identifier] or several
        first = whole[0]
        if all(entity.content == first.content for entity in whole):
            further = [entity.parent_address for entity in whole[1:]]
            alone = classes[first.identity] == 1
            key = first.identity if alone else "+".join(first.address) or first.identity
            yield _record(first, key, further, stream, opened_at_us)
        else:
            for key, entity in {"+".join(entity.address): entity for entity in whole}.items():
                yield _record(entity, key, [], stream, opened_at_us)


def _record(
    entity: Entity, key: str, further: list[tuple[str, ...]], stream: str, opened_at_us: int
) -> Record:
    envelope: dict[str, Any] = {
        "parent-address": entity.parent_address,
        "record-content": entity.entity_class,
    }
    if further:
        envelope["further-parent-addresses"] = further
    return Record(
        stream,
        key,
        RecordType.CREATE_UPDATE,
        "",
        opened_at_us,
        entity_class=entity.entity_class,
        body=msgspec.json.encode(entity.content),
        envelope=msgspec.json.encode(envelope),
        uuid=entity.identity,
    )
