"""The rules about current state by GET, beside what the log says (TR-548 3.6, 3.7.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from instep.conformance import HELD, NOTHING, Judge, Rule, RuleBroken, Verdict
from instep_tapi.conformance.making import clauses, listed
from instep_tapi.conformance.observations import NetworkSeen, ShownEntity, StatedEntity
from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.names import ANY_CLASS

__all__ = ["RULES"]

_CHAPTER: Final = "Current state by GET"
_MARGIN_US: Final = 5_000_000
"""How much earlier than a GET a record must be, for the GET to show what it says."""


def _classes(seen: NetworkSeen) -> frozenset[str]:
    """The classes of the stream of which a GET shows at least one entity."""
    assert seen.declared.type is not None
    declared = seen.declared.type.classes
    shown = frozenset(cls for cls, _ in seen.shown)
    return shown if ANY_CLASS in declared else shown & declared


def _before(stated: StatedEntity, seen: NetworkSeen) -> bool:
    """Whether a record is older than both GETs, by its append time and by when it came."""
    came_us = stated.evidence.at_us
    return (
        stated.append_us < seen.first_us - _MARGIN_US and came_us < seen.answer.at_us - _MARGIN_US
    )


def _all_streamed(seen: NetworkSeen) -> Sequence[Verdict]:
    classes = _classes(seen)
    assert seen.declared.type is not None
    if not classes or seen.declared.type.storage != "COMPACTED":
        return NOTHING
    # What has ended since may have ended after the second GET.
    since_us = seen.first_us - _MARGIN_US
    stated = {one.uuid for one in seen.stated if one.alive or one.append_us >= since_us}
    # Of a class whose entities are stated without uuid nothing can be compared.
    nameless = {one.cls for one in seen.stated if one.alive and not one.uuid}
    lacking = [
        (entity, one.where)
        for entity, one in seen.shown.items()
        if entity[0] in classes - nameless and entity[1] not in stated
    ]
    if not lacking:
        return HELD
    (_, uuid), where = lacking[0]
    ended = next((one for one in seen.stated if one.uuid == uuid), None)
    reason = (
        f"{len(lacking):,} entities that two GETs show are not in stream {seen.declared.name}; the"
        f" first is {where}"
    )
    evidence = (seen.answer,) if ended is None else (ended.evidence, seen.answer)
    return (RuleBroken(reason, evidence),)


def _nothing_bogus(seen: NetworkSeen) -> Sequence[Verdict]:
    assert seen.declared.type is not None
    if seen.declared.type.storage != "COMPACTED":
        return NOTHING  # what was ended before a log began anew is not ended in it
    classes = _classes(seen)
    readable = frozenset[str]().union(*CLASS_MODEL.resources[seen.edition].values())
    if not classes & readable:
        return NOTHING
    shown = {uuid for _, uuid in seen.ever_shown}
    bogus = [
        one
        for one in seen.stated
        if one.alive
        and one.uuid
        and one.cls in classes & readable
        and _before(one, seen)
        and one.uuid not in shown
    ]
    if not bogus:
        return HELD
    reason = (
        f"{len(bogus):,} entities that stream {seen.declared.name} states are in neither of two"
        f" GETs; the first is {bogus[0].cls} {bogus[0].uuid}"
    )
    return (RuleBroken(reason, (bogus[0].evidence, seen.answer)),)


def _compared(seen: NetworkSeen) -> Iterator[tuple[StatedEntity, ShownEntity]]:
    """What the log has stated last of each entity, long before the first GET, and what both GETs
    show of it; only where a record states whole entities.
    """
    assert seen.declared.type is not None
    if seen.declared.type.strategy not in {"WHOLE_ENTITY_ON_CHANGE", "WHOLE_ENTITY"}:
        return
    times = Counter((one.cls, one.uuid) for one in seen.stated)
    for one in seen.stated:
        entity = (one.cls, one.uuid)
        shown = seen.shown.get(entity)
        if shown is None or not one.alive or not one.members or times[entity] > 1:
            continue
        if _before(one, seen):
            yield one, shown


def _each_compared(look: Callable[[StatedEntity, ShownEntity], str]) -> Callable[[], Judge]:
    """A judge of what is compared: `look` gives what is wrong with an entity, else nothing."""

    def judge(seen: NetworkSeen) -> Sequence[Verdict]:
        found: Sequence[Verdict] = NOTHING
        for stated, shown in _compared(seen):
            if wrong := look(stated, shown):
                return (RuleBroken(wrong, (stated.evidence, seen.answer)),)
            found = HELD
        return found

    return lambda: judge


def _lacking(stated: StatedEntity, shown: ShownEntity) -> str:
    lacking = listed(sorted(shown.members.keys() - stated.members.keys()))
    entity = f"{stated.cls} {stated.uuid}"
    return lacking and f"the record of {entity} lacks {lacking}, which two GETs show"


def _differing(stated: StatedEntity, shown: ShownEntity) -> str:
    for name, value in shown.members.items():
        if stated.members.get(name, value) != value:
            return (
                f"two GETs show {name} {value!r} of {stated.cls} {stated.uuid}, and its last"
                f" record, which is older, {stated.members[name]!r}"
            )
    return ""


def _parent_true(seen: NetworkSeen) -> Sequence[Verdict]:
    found: Sequence[Verdict] = NOTHING
    for stated in seen.stated:
        shown = seen.shown.get((stated.cls, stated.uuid))
        if shown is None or not stated.alive or not stated.parent or not _before(stated, seen):
            continue
        if stated.parent not in shown.parents:
            wrong = (
                f"the parent-address of {stated.cls} {stated.uuid} ends with {stated.parent}, and"
                f" two GETs show it as {shown.where}"
            )
            return (RuleBroken(wrong, (stated.evidence, seen.answer)),)
        found = HELD
    return found


def _rule(id_: str, **given: Any) -> Rule:
    return Rule(
        id=f"tapi-{id_}",
        chapter=_CHAPTER,
        provoke="Let the whole context be read by GET, and the stream from its oldest record.",
        sees=(NetworkSeen,),
        **given,
    )


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "all-streamed",
        text="All entities of the classes that a stream declares are in it.",
        clauses=clauses("3.7.1, 3.8.1.1", "3.7.1, 3.8.1.1"),
        why="A client that trusts the stream alone does not know of them: alarms refer to ports"
        " that it has never seen.",
        right="each LINK of the context has a record",
        wrong="a LINK that only GET shows",
        make_judge=lambda: _all_streamed,
    ),
    _rule(
        "none-bogus",
        text="What the log states exists: an entity that is gone is ended in it.",
        clauses=clauses("3.6", "3.6"),
        why="The client keeps what nobody ends: services run over links that were taken down.",
        right="a TOMBSTONE of each entity that was removed",
        wrong="a last record of a NODE that no GET shows",
        make_judge=lambda: _nothing_bogus,
    ),
    _rule(
        "whole-records",
        text="A record of WHOLE_ENTITY_ON_CHANGE states all members that a GET shows.",
        clauses=clauses("3.8.2.1", "3.8.2.1"),
        why="A record replaces the one before it. What it does not state is gone from the client's"
        " store, though nothing has changed.",
        right="each record of the NODE has its lifecycle-state",
        wrong="a record of the NODE with its operational-state alone",
        make_judge=_each_compared(_lacking),
    ),
    _rule(
        "get-agrees",
        text="What a GET shows of an entity is what the log has stated of it last.",
        clauses=clauses("3.6, 3.17.1", "3.6, 3.17.1"),
        why="A change that is not logged never comes to the client: its store differs from the"
        " network, and it is told to be aligned.",
        right='"operational-state": "ENABLED" in the last record, and in the GET',
        wrong='"DISABLED" in the GET, "ENABLED" in a record of an hour ago, and no newer one',
        make_judge=_each_compared(_differing),
    ),
    _rule(
        "parent-true",
        text="parent-address ends with the entity that a GET shows right above.",
        clauses=clauses("3.10.1", "3.10.3"),
        why="The client puts the entity below another one: a port is looked for at the wrong node.",
        right='"node-uuid:7f65…", and the GET shows it in node 7f65…',
        wrong='"node-uuid:7f65…", and the GET shows it in node 113f…',
        make_judge=lambda: _parent_true,
    ),
)
