"""States the entities of a RESTCONF answer as a stream would, each entity once (A13). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from instep.model.records import Record, RecordType, Unreadable
from instep_tapi.facts.containment import GLOBAL_CLASSES, LOCAL_CLASSES, classes_below
from instep_tapi.facts.detector import states_end
from instep_tapi.facts.names import CONDITION_DETECTOR, strip_module
from instep_tapi.restconf.json_bounds import decode_bounded
from instep_tapi.restconf.json_repair import RepairedDocument, repair
from instep_tapi.wire.context_tree import Entity, UnidentifiedElement, entities
from instep_tapi.wire.framing import BYTE_ORDER_MARK

__all__ = ["BaselinePage", "BaselineScope", "UnreadableAnswer", "page_records", "pages_of"]

PAGE_RECORDS: Final = 1_000
_SHOWN_BYTES: Final = 64
_EVENT_TIME: Final = "event-time-stamp"


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


class BaselinePage(msgspec.Struct, frozen=True, tag=True):
    """Some of what an answer states."""

    records: list[Record]
    unreadable: list[Unreadable] = []
    """Elements that cannot be read (A17)."""
    deviations: dict[str, int] = {}


def pages_of(
    body: bytes, wanted: BaselineScope, seen: set[tuple[str, str]]
) -> Iterator[BaselinePage]:
    """Pages of records of an answer; entities that are `seen`, by class and identity, are stated
    already. One element that cannot be read costs that element. Raises `UnreadableAnswer`.
    """
    deviations = {"byte-order-mark": 1} if body.startswith(BYTE_ORDER_MARK) else {}
    bad: RepairedDocument | None = None
    try:
        document = decode_bounded(body)
    except ValueError as error:
        bad = repair(body)
        if bad is None:
            text = f"the answer is cut short or no JSON: {error}"
            raise UnreadableAnswer(text, retriable=True) from None
        document = bad.document
        if bad.commas:
            deviations["needless-comma"] = bad.commas
    unidentified: list[UnidentifiedElement] = []
    try:
        found = list(entities(document, wanted.cut, unidentified))
    except ValueError as error:
        raise UnreadableAnswer(str(error), retriable=False) from None
    unreadable = [
        kept for one in unidentified if (kept := _unidentified(one, bad, wanted)) is not None
    ]
    if bad is not None:
        explained = bad.marks([one.content for one in unidentified])
        found, further = _without_bad(found, bad, wanted, explained)
        unreadable += further
    if deviations or unreadable:
        yield BaselinePage([], unreadable, deviations)
    stated = [entity for entity in found if _is_wanted(entity.entity_class, wanted)]
    records = page_records(stated, wanted.stream, wanted.opened_at_us, seen)
    while page := list(islice(records, PAGE_RECORDS)):
        yield BaselinePage(page)


def _is_wanted(entity_class: str, wanted: BaselineScope) -> bool:
    if entity_class in wanted.classes:
        return True
    known = LOCAL_CLASSES | GLOBAL_CLASSES | {CONDITION_DETECTOR}
    return wanted.everything and entity_class not in known


def _unidentified(
    one: UnidentifiedElement, bad: RepairedDocument | None, wanted: BaselineScope
) -> Unreadable | None:
    """An element that states nothing that could be stored: which entity it is, is not known, nor
    what stands below it. None where nothing of that is wanted.
    """
    name, below = one.entity_class, classes_below(one.entity_class)
    hides = not name or not below.isdisjoint(wanted.classes)
    if not hides and not _is_wanted(name, wanted):
        return None
    raw = bad.original(one.content) if bad is not None else msgspec.json.encode(one.content)
    reason = f"a {name or 'part'} of the baseline without an identifier that can be read"
    return Unreadable(wanted.stream, raw, reason, entity_class="" if hides else name)


def _without_bad(
    found: list[Entity], bad: RepairedDocument, wanted: BaselineScope, explained: set[int]
) -> tuple[list[Entity], list[Unreadable]]:
    """The entities without those of which a value cannot be read, and these. `explained`: bad
    values that are told of already.
    """
    good: list[Entity] = []
    unreadable: list[Unreadable] = []
    met = explained
    for entity in found:
        marks = bad.marks([entity.content, entity.parent_address])
        met = met | marks
        if not marks:
            good.append(entity)
        elif _is_wanted(entity.entity_class, wanted):
            values = ", ".join(ascii(bad.values[at][:_SHOWN_BYTES])[1:] for at in sorted(marks)[:3])
            reason = f"a {entity.entity_class} of the baseline with what is no JSON: {values}"
            raw = bad.original(entity.content)
            name = entity.entity_class
            unreadable.append(Unreadable(wanted.stream, raw, reason, entity_class=name))
    beside = set(range(len(bad.values))) - met
    if beside:
        raw = b"\n".join(bad.values[at] for at in sorted(beside))
        reason = "a value of the baseline that is no JSON, and stands in no entity"
        unreadable.append(Unreadable(wanted.stream, raw, reason))
    return good, unreadable


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
        if entity.entity_class == CONDITION_DETECTOR and _stands_no_more(entity):
            continue
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


def _stands_no_more(entity: Entity) -> bool:
    return states_end(msgspec.json.encode(entity.content), [])


def _record(
    entity: Entity, key: str, further: list[tuple[str, ...]], stream: str, opened_at_us: int
) -> Record:
    envelope: dict[str, Any] = {
        "parent-address": entity.parent_address,
        "record-content": entity.entity_class,
    }
    if entity.entity_class == CONDITION_DETECTOR:
        # An active-condition has it in itself.
        at = next((v for n, v in entity.content.items() if strip_module(n) == _EVENT_TIME), None)
        envelope |= {_EVENT_TIME: {"primary-time-stamp": at}} if isinstance(at, str) else {}
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
