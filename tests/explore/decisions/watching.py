"""What is watched of a stream beside its records: audits, single looks, what can be read, progress,
and which stream it is (A11, A12, A16, A17, A20), in every small case.
"""

from __future__ import annotations

from itertools import product
from math import inf
from typing import Any, Final

from instep.alignment.audit import (
    AuditReport,
    CatchUpDetector,
    Counts,
    Finding,
    Verdict,
    check_auditable,
    check_standing,
)
from instep.alignment.audit_schedule import AuditSchedule
from instep.alignment.lookups import LookupResult, LookupScheduler, WrongEntities
from instep.alignment.readability import Readability
from instep.alignment.reading_progress import ReadingProgress
from instep.alignment.stream_identity import (
    StreamCandidate,
    alike,
    choose_place,
    log_of,
    match_streams,
    unused_id,
)
from instep.errors import AuditError
from instep.model.lookups import LookupAnswer, LookupVerdict
from instep.model.position import Phase, Position
from instep.model.records import RecordHeader, RecordType, Unreadable
from instep.model.streams import Mode, StreamInfo
from tests.explore.decisions.compare import every, same, sequences

__all__ = [
    "audits",
    "catching_up",
    "names_of_streams",
    "progress",
    "schedules",
    "single_looks",
    "unreadable_connections",
    "wrong_entities",
]

_US: Final = 1_000_000


def _record(partition: str, offset: int, at_s: int) -> RecordHeader:
    return RecordHeader(
        "s", "k", RecordType.CREATE_UPDATE, "t", at_s * _US, partition=partition, offset=offset
    )


def catching_up() -> int:
    """When an audit has passed a position and a moment (A12)."""
    cases = 0
    begin = Position(offsets={"p": 3}, appended_us={"p": 90 * _US})
    for case in every(
        begin=(None, begin),
        target=({}, {"p": 4}, {"p": 4, "q": 1}),
        records=[(), *sequences(((p, o, t) for p in "pq" for o in (1, 4) for t in (100, 101)), 2)],
        explained_s=(None, 99, 103),
        now_s=(102, 103, 104, 105, 107, 108, 110),
    ):
        cases += 1
        detector = CatchUpDetector(2.0, 5.0, 95 * _US, case["begin"])
        detector.aim(Position(offsets=case["target"]), 100 * _US)
        heard_s = {}
        offsets = {"p": 3} if case["begin"] else {}
        times_s = {"p": 90} if case["begin"] else {}
        for number, one in enumerate(case["records"]):
            detector.heard([_record(*one)], (101 + number) * _US)
            heard_s[one[0]], times_s[one[0]] = 101 + number, one[2]
            offsets[one[0]] = max(one[1], offsets.get(one[0], -1))
        if case["explained_s"]:
            detector.silence_from(case["explained_s"] * _US)
        from_s = max(100, case["explained_s"] or 0)
        arrived = True
        for name in {*case["target"], *times_s}:
            silent_s = case["now_s"] - max(from_s, heard_s.get(name, 0))
            passed = offsets.get(name, -1) >= case["target"].get(name, -1)
            beyond = times_s.get(name, 0) > 100
            enough_s = 2 if passed else 5
            arrived = arrived and ((passed and beyond) or silent_s >= enough_s)
        if not case["target"] and not times_s:
            arrived = case["now_s"] - from_s >= 2
        same(detector.arrived(case["now_s"] * _US), arrived, case)
    return cases


def audits() -> int:
    """What can be audited, and whether a report is clean (A12)."""
    cases = 0
    for mode, readable, resumable in product(Mode, (frozenset(), frozenset("A")), (False, True)):
        cases += 1
        stream = StreamInfo(
            id="s", origin="o", kind="k", mode=mode, readable=readable, resumable=resumable
        )
        unknown = mode is Mode.BASELINE and not readable
        same(_refuses(check_auditable, stream), unknown or not resumable, stream)
    stream = StreamInfo(id="s", origin="o", kind="k")
    for phase, origin, attempt, before in product(Phase, ("o", "x"), (1, 2), (None, 1)):
        cases += 1
        position = Position(phase=phase, origin=origin, attempt=attempt)
        known = None if before is None else Position(attempt=before)
        stands = phase in (Phase.ALIGNED, Phase.SWEEP_HELD) and origin == "o"
        stands = stands and before in (None, attempt)
        same(_refuses(check_standing, stream, position, known), not stands, phase, origin, attempt)
    for stale, bogus, missing, repaired in product((0, 1, 2), (0, 1, 2), (0, 1, 2), range(7)):
        cases += 1
        counts = Counts(stale=stale, bogus=bogus, missing=missing, repaired=repaired)
        report = AuditReport(stream="s", counts=counts, records=1, unreadable=0, rounds=1)
        same(report.clean, repaired == stale + bogus + missing, counts)
    return cases


def _refuses(check: Any, *values: object) -> bool:
    try:
        check(*values)
    except AuditError:
        return True
    return False


def schedules() -> int:
    """Which stream is audited next (A12)."""
    cases = 0
    for share, retention_s, other_s in product((0.0, 0.5, 4.0), (None, 600.0), (None, 8_000.0)):
        schedule = AuditSchedule(share)
        every_s = {}
        for name, keeps_s in (("a", retention_s), ("b", other_s)):
            every_s[name] = min(3_600 / share if share else inf, (keeps_s or inf) / 2)
            if not share:
                every_s[name] = inf
            same(schedule.every_s(keeps_s), every_s[name], share, keeps_s)
        keeps = {"a": retention_s, "b": other_s}
        for history in sequences(("passed", "put off", "leave out", "left", "follow"), 3):
            cases += 1
            schedule = AuditSchedule(share)
            due_s: dict[str, float] = {name: 10 + every_s[name] / 2 for name in "ab"}
            schedule.follow(keeps, 10.0)
            for now_s, step in enumerate(history, start=100):
                match step:
                    case "passed":
                        schedule.passed("a", retention_s, now_s)
                        due_s["a"] = now_s + every_s["a"]
                    case "put off":
                        schedule.put_off("a", retention_s, now_s)
                        due_s["a"] = now_s + min(60, every_s["a"] / 10)
                    case "leave out":
                        schedule.leave_out("a")
                        due_s["a"] = inf
                    case "left":
                        schedule.follow({"b": other_s}, now_s)
                        due_s.pop("a", None)
                    case _:
                        schedule.follow(keeps, now_s)
                        due_s.setdefault("a", now_s + every_s["a"] / 2)
            for ready in ("", "a", "b", "ab"):
                times_s = {*due_s.values(), 130.0, *(at_s - 1 for at_s in due_s.values())}
                for asked_s in sorted(times_s - {inf}):
                    due = [(at_s, name) for name, at_s in due_s.items() if name in ready]
                    first = min(due, default=(inf, ""))
                    expected = first[1] if first[0] <= asked_s else None
                    same(schedule.due(ready, asked_s), expected, share, history, ready, asked_s)
    return cases


def unreadable_connections() -> int:
    """What of a connection can be read, and when it is opened anew (A11)."""
    cases = 0
    steps = (("read", 1), ("read", 60), ("refused", 19), ("refused", 1), ("refused", 100),
             ("both", 1), ("opened",), ("attempt",), ("caught up",))  # fmt: skip
    for history in sequences(steps, 4):
        cases += 1
        found = Readability()
        known: set[int] = set()
        readable = refused = row = step = 0
        mixed = False
        for one in history:
            match one:
                case ("opened",):
                    found.opened()
                    readable = refused = row = 0
                    mixed = False
                case ("attempt",):
                    found.attempt_begun()
                    known.clear()
                case ("caught up",):
                    found.caught_up()
                    step = 0
                case (kind, count):
                    texts = [] if kind == "read" else [_TEXTS[n] for n in range(count)]
                    read = 0 if kind == "refused" else count
                    new = found.received(read, texts)
                    mixed = mixed or (read > 0 and refused > 0)
                    same(new, len(set(range(len(texts))) - known), "new", history)
                    known |= set(range(len(texts)))
                    readable, refused = readable + read, refused + len(texts)
                    row = 0 if read else row + len(texts)
                    many = refused >= 100 and refused > readable
                    ends = step < 2 and (row >= 20 or many)
                    if ends and texts:
                        from_oldest = mixed or step > 0
                        step = 2 if from_oldest else 1
                        broken = found.broken()
                        same(broken and broken[1], from_oldest, "broken", history)
                    elif texts:
                        same(found.broken(), None, "goes on", history)
            counts = found.readable, found.refused, found.nothing_readable
            same(counts, (readable, refused, refused > 0 and not readable), history)
    return cases


_TEXTS: Final = [Unreadable("s", b"text %d" % n, "why") for n in range(100)]


def progress() -> int:
    """Whether connections come further than those before them (A16)."""
    cases = 0
    ends = [
        Position(offsets=offsets, appended_at_us=at_us, lineage=lineage, phase=phase)
        for offsets, at_us, lineage, phase in product(
            ({}, {"p": 0}, {"p": 1}, {"q": 0}), (0, 7, 8), (1, 2), (Phase.ALIGNING, Phase.ALIGNED)
        )
    ]
    for history in sequences(ends, 3):
        cases += 1
        found = ReadingProgress()
        furthest: dict[str, int] = {}
        fruitless, lineage = 0, history[0].lineage
        for one in history:
            reached = dict(one.offsets)
            if not reached and one.appended_at_us:
                reached = {"": one.appended_at_us}
            if one.lineage != lineage:
                furthest, further = {}, False
            else:
                further = any(place > furthest.get(name, -1) for name, place in reached.items())
            lineage = one.lineage
            for name, place in reached.items():
                furthest[name] = max(place, furthest.get(name, -1))
            fruitless = 0 if further or one.phase is Phase.ALIGNED else fruitless + 1
            found.ended(one)
        same((found.fruitless, found.stalled), (fruitless, fruitless >= 3), history)
    held = ReadingProgress()
    held.ended(Position(phase=Phase.SWEEP_HELD))
    same(held.fruitless, 0)
    return cases


_ANSWERS: Final = {
    "unknown": LookupAnswer(LookupVerdict.UNKNOWN),
    "as stored": LookupAnswer(LookupVerdict.SHOWN, b"{}"),
    "other": LookupAnswer(LookupVerdict.SHOWN, b"{1}"),
    "another": LookupAnswer(LookupVerdict.SHOWN, b"{2}"),
    "absent": LookupAnswer(LookupVerdict.ABSENT),
}


def single_looks() -> int:
    """What answers to requests for single entities prove (A17): histories of four steps, with
    looks 4 or 6 seconds after each other, where 5 must pass.
    """
    cases = 0
    steps = [
        *(("a", answer, wait_s) for answer in _ANSWERS for wait_s in (4, 6)),
        ("b", "as stored", 1),
        ("changed", "", 0),
        ("behind", "", 0),
        ("aligned", "", 1),
    ]
    for history in sequences(steps, 4):
        cases += 1
        _looks(history)
    return cases


def _looks(history: tuple[tuple[str, str, int], ...]) -> None:  # noqa: C901, PLR0912
    found = LookupScheduler(2.0, 5.0, 100.0)
    now_s, token, known_s = 100, 1, 1_000
    first: tuple[int, str, int] | None = None
    """The look that differed: when, what was shown, and what was stored."""
    due_s = 0
    shown_s: int | None = None
    fruitless, paused_until_s = 0, 0
    for step, stated, wait_s in history:
        now_s, answer = now_s + wait_s, stated
        if step == "changed":
            token += 1
            continue
        if step == "behind":
            known_s = 90  # the stream is read late: up to before every look
            continue
        if step == "aligned":
            found.attempt_ended(now_s)
            first = None
            continue
        expected = None
        if step == "b":
            shown_s, fruitless, paused_until_s = now_s, 0, 0
            expected = LookupResult.RIGHT
        elif answer == "as stored":
            shown_s, fruitless, paused_until_s, first = now_s, 0, 0, None
            expected = LookupResult.RIGHT
        else:
            shown = answer in ("other", "another")
            if answer == "unknown":
                first = None
            if shown:
                shown_s, fruitless, paused_until_s = now_s, 0, 0
            else:
                fruitless += 1
                if fruitless >= 3 and (shown_s is None or now_s - shown_s >= 60):
                    # Nothing of the class is shown: it is left alone for a minute.
                    fruitless, first, paused_until_s = 0, None, now_s + 60
                    answer = "unknown"
            if answer == "unknown":
                pass
            elif first is None or first[1:] != (answer, token):
                first, due_s = (now_s, answer, token), now_s + 5
            else:
                controlled = shown or (shown_s is not None and shown_s > first[0])
                if now_s - first[0] >= 5 and known_s >= first[0] and controlled:
                    expected = LookupResult.STALE if shown else LookupResult.BOGUS
                    first = None
                else:
                    due_s = now_s + 5
        key = "b" if step == "b" else "a"
        result = found.answered(
            key,
            "A",
            str(token),
            _ANSWERS[stated],
            now_s,
            agrees=answer == "as stored",
            known_s=known_s,
        )
        same(result, expected, history, now_s)
    for later_s in (0, 4, 5, 60, 61):
        at_s = now_s + later_s
        paused = at_s < paused_until_s
        same(found.allowed({"A", "B"}, at_s), frozenset("B" if paused else "AB"), history, later_s)
        due = found.due(at_s, unproven=0)
        waits = first is not None and due_s <= at_s and not paused
        if waits and first is not None:
            controlled = first[1] != "absent" or (shown_s is not None and shown_s > first[0])
            same(due and str(due.reason), "again" if controlled else "control", history, later_s)
        else:
            same(due and str(due.reason), "sample", history, later_s)
        unproven = found.due(at_s, unproven=1)
        same(unproven and str(unproven.reason) in ("again", "control"), waits, history, later_s)
        if not waits:
            same(unproven and str(unproven.reason), "unproven", history, later_s)


def wrong_entities() -> int:
    """Which entities are known as wrong."""
    cases = 0
    steps = (*((key, verdict) for key in "ab" for verdict in (None, *Verdict)), "all right",
             "one wrong")  # fmt: skip
    one = Finding(stream="s", key="a", entity_class="A", verdict=Verdict.BOGUS, token="t")
    for history in sequences(steps, 3):
        cases += 1
        found = WrongEntities()
        known: dict[str, Verdict] | None = None
        for step in history:
            if step == "all right":
                found.compared()
                known = {}
            elif step == "one wrong":
                found.compared([one])
                known = {"a": Verdict.BOGUS}
            else:
                key, verdict = step
                known = known or {}
                first = verdict is not None and known.get(key) is not verdict
                same(found.looked(key, verdict), first, history)
                known.pop(key, None)
                if verdict is not None:
                    known[key] = verdict
        if known is None:
            same(found.counts(), None, history)
        else:
            verdicts = [str(verdict) for verdict in known.values()]
            same(found.counts(), {name: verdicts.count(name) for name in set(verdicts)}, history)
    return cases


def names_of_streams() -> int:  # noqa: C901, PLR0912 - one table after the other
    """Which stream an offered one is (A20): two known ones against two that are offered."""
    cases = 0
    kinds = [
        StreamInfo(
            id=id_, uuid=uuid, origin="o", kind="k", endpoint=endpoint, classes=classes, variant="v"
        )
        for id_, uuid, endpoint, classes in product(
            "ab", ("", "u", "v"), ("e", "f"), (("A",), ("B",))
        )
    ]
    for known in kinds:
        for offered in kinds:
            cases += 1
            one = match_streams([known], [offered])
            by_uuid = known.uuid == offered.uuid != ""
            carries = known.classes == offered.classes
            same(alike(known, offered), carries, known, offered)
            # By its id, unless both have uuids that differ, and it states something else elsewhere.
            by_id = known.id == offered.id and (
                not known.uuid or not offered.uuid or carries or known.endpoint == offered.endpoint
            )
            is_it = by_uuid or by_id
            same([x.id for x in one.named if is_it], [known.id] if is_it else [], known, offered)
            same(one.missing, () if is_it else (known,), "missing", known, offered)
            doubtful = not is_it and carries
            same(one.doubtful, (offered,) if doubtful else (), "doubtful", known, offered)
            if not is_it and not doubtful:
                # A new one; its id may be taken.
                taken = known.id == offered.id
                name = (offered.uuid or f"{offered.id}-2") if taken else offered.id
                same([x.id for x in one.named], [name], "new", known, offered)
            shown = match_streams([known], [offered], {log_of(offered): known.id, "w": "gone"})
            same([x.id for x in shown.named], [known.id], "shown", known, offered)
    few = [one for one in kinds if one.endpoint == "e"]
    for offered in few:
        for other in few:
            cases += 1
            known = StreamInfo(
                id="a", uuid="u", origin="o", kind="k", endpoint="x", classes=("A",), variant="v"
            )
            both = match_streams([known], [offered, other])
            names = [offered.uuid, other.uuid]
            ids = [offered.id, other.id]
            at: int | None = None
            if names.count("u") == 1:
                at = names.index("u")
            elif ids.count("a") == 1:
                place = ids.index("a")
                stream = (offered, other)[place]
                only = [one.classes for one in (offered, other)].count(("A",)) == 1
                if not stream.uuid or stream.uuid == "u" or (stream.classes == ("A",) and only):
                    at = place
            same(both.missing, (known,) if at is None else (), "one of two", offered, other)
    for stored, stated, common in product(range(4), range(4), range(4)):
        cases += 1
        candidate = StreamCandidate("x", stored, stated, common)
        least = min(stored, stated)
        same(candidate.agrees, least > 0 and common >= least / 2, candidate)
    pairs = [
        StreamCandidate(id_, stored, 2, common)
        for id_, stored, common in product("xy", (0, 2), (0, 1, 2))
    ]
    for candidates, only, id_ in product(sequences(pairs, 2), (False, True), ("x", "z")):
        cases += 1
        agreeing = [one for one in candidates if one.stored and one.common]
        empty = [one for one in candidates if not one.stored]
        best = max((one.common for one in agreeing), default=0)
        if agreeing:
            chosen = next(one.id for one in agreeing if one.common == best)
        elif only and len(candidates) == 1 and empty:
            chosen = candidates[0].id
        else:
            chosen = next((one.id for one in empty if one.id == id_), "")
        same(choose_place(candidates, only=only, id_=id_) or "", chosen, candidates, only, id_)
    stream = StreamInfo(id="a", uuid="u", origin="o", kind="k")
    same([unused_id(stream, used) for used in ((), "u", ("u", "a-2"))], ["u", "a-2", "a-3"])
    return cases
