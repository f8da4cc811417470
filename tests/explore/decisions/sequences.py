"""What is done about a sequence beside its messages (S4, S12, S13), in every small case."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from instep.model.ranges import RangeMap, Ranges
from instep.sequencing import SequencePhase, SequencerSettings, SequencerState
from instep.sequencing.claims import Claims
from instep.sequencing.ends import NumberEnd, RecordedEnd, resolve_ends
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.operator_actions import OperatorAction, why_not
from instep.sequencing.outbox import (
    Outbox,
    OutboxDecision,
    OutboxFullError,
    OutboxMessage,
    OutboxSettings,
)
from instep.sequencing.risks import risks_of
from instep.sequencing.settings import FaultPolicy
from instep.sequencing.state import BufferedMessage
from instep.sequencing.transitions import Refusal
from tests.explore.decisions.compare import every, same, sequences

__all__ = ["ends_of_numbers", "operators", "outboxes", "risks"]

_US: Final = 1_000_000


def risks() -> int:
    """Of which settings a message may be lost or stop its sequence within an hour."""
    cases = 0
    for policy, resort, deadline_s, repeat_s, attempts in product(
        GapPolicy, LastResort, (0.5, 9.5, 10.0, 3_000.0, 3_600.0), (0.25, 300.0), (0, 1, 2)
    ):
        cases += 1
        settings = SequencerSettings(
            gap_policy=policy,
            gap_last_resort=resort,
            gap_deadline_s=deadline_s,
            gap_repeat_s=repeat_s,
            gap_attempts=attempts,
        )
        again = policy in ("wait", "resend")
        end = str(resort) if again else str(policy)
        waits_s = deadline_s + (repeat_s * attempts if again else 0)
        found = risks_of(settings)
        given = policy, resort, deadline_s, repeat_s, attempts
        told = end == "skip" or (end == "fail" and waits_s < 3_600)
        same(len(found), int(told), "told", given)
        if told:
            same("is lost" in found[0], end == "skip", "lost", given)
            text = f"{waits_s:,.0f}" if waits_s >= 10 else f"{waits_s:g}"
            same(f"within {text} s" in found[0], True, "within", given)
    return cases


def operators() -> int:
    """What an operator may ask of a sequence, and what is claimed of it (S3, S13)."""
    cases = 0
    for case in every(
        phase=SequencePhase,
        received=((), ((0, 0),), ((1, 1), (3, 3))),
        next_number=(1, 2),
        held=(None, False, True),
        buffered=(False, True),
        highest_seen=(-1, 4),
        announced=(None, 4),
        faulted=(None, 2),
        policy=FaultPolicy,
        number=(None, 0, 1, 2, 5, 6),
        action=OperatorAction,
    ):
        cases += 1
        settings = SequencerSettings(first_number=1, max_number=5, fault_policy=case["policy"])
        faulted = RangeMap[Refusal]()
        if case["faulted"]:
            faulted.set_range(2, 2, Refusal.EXPIRED)
        message = BufferedMessage(3, b"", 1, 0, 0)
        state = SequencerState(
            case["next_number"],
            case["phase"],
            received=Ranges.of(*case["received"]),
            faulted=faulted,
            buffered=[message] if case["buffered"] else [],
            highest_seen=case["highest_seen"],
            announced=case["announced"],
        )
        _operator(case, state, settings)
    return cases


def _operator(case: dict[str, Any], state: SequencerState, settings: SequencerSettings) -> None:
    phase, number, action = str(case["phase"]), case["number"], case["action"]
    received = {1, 3} if len(case["received"]) == 2 else {0} if case["received"] else set()
    highest = max([*received, case["highest_seen"]])
    claims = Claims(state, settings)
    same(claims.highest, None if highest < 0 else highest, "highest", case)
    same(claims.final, phase in ("closed", "failed", "terminated"), "final", case)
    accepts = phase in ("open", "ending")
    passes = received | ({2} if case["faulted"] and case["policy"] == "skip" else set())
    used = max(highest, -1 if case["announced"] is None else case["announced"])
    missing = [n for n in range(case["next_number"], used + 1) if n not in passes]
    found = [n for low, high in claims.missing() for n in range(low, high + 1)]
    same(found, missing if accepts else [], "missing", case)

    held = case["buffered"] if case["held"] is None else case["held"]
    over = phase in ("complete", "closed", "terminated")
    if number in (0, 6):
        refused = True
    elif action == "give-up":
        nothing_waits = (over or phase == "failed") and not held
        all_there = number is None and ((accepts and not missing) or highest < 0)
        passed = number is not None and number < case["next_number"]
        refused = nothing_waits or all_there or passed
    elif action == "close":
        refused = phase in ("failed", "closed", "terminated")
    elif action == "resume":
        refused = phase != "failed"
    else:
        refused = False
    why = why_not(state, settings, action, number, held=case["held"])
    same(bool(why), refused, "refused", case)
    # The answer names what works.
    if action in ("close", "resume") and number not in (0, 6) and refused:
        works = {"failed": "`resume`"}.get(phase, "`reset`" if over else "`give-up`")
        same(works in why, True, why, case)


def ends_of_numbers() -> int:
    """What became of each number (S13): what was recorded last, and what the state tells."""
    cases = 0
    ends = [
        RecordedEnd(low=low, high=high, end=end, by=by)
        for low, high in ((1, 1), (1, 2))
        for end, by in (
            (NumberEnd.LOST, "receiver"),
            (NumberEnd.SUPERSEDED, "sender"),
            (NumberEnd.TRIMMED, ""),
            (NumberEnd.DELIVERED, "operator"),
            (NumberEnd.DELIVERED, ""),
        )
    ]
    states = [
        None,
        SequencerState(1),
        SequencerState(2, received=Ranges.of((1, 2))),
        SequencerState(3, received=Ranges.of((1, 1)), cancelled=Ranges.of((2, 2))),
    ]
    for state, held, recorded in product(states, ((), (2,)), [(), *sequences(ends, 3)]):
        if held and (state is not states[2] or any(not one.by for one in recorded)):
            # What waits is received, and of its count nothing was delivered without a decision.
            continue
        cases += 1
        found = {
            number: (str(one.end), one.by)
            for one in resolve_ends(state, Ranges.of_numbers(held), recorded)
            for number in range(one.low, one.high + 1)
        }
        expected = {}
        for number in (1, 2):
            became = _became(number, state, held, recorded)
            if became:
                expected[number] = became
        same(found, expected, state, held, recorded)
    later = RecordedEnd(low=1, high=1, end=NumberEnd.LOST, epoch=2)
    both = resolve_ends(SequencerState(2, received=Ranges.of((1, 1)), epoch=1), Ranges(), [later])
    same([(one.epoch, str(one.end)) for one in both], [(1, "delivered"), (2, "lost")])
    return cases


def _became(
    number: int,
    state: SequencerState | None,
    held: tuple[int, ...],
    recorded: tuple[RecordedEnd, ...],
) -> tuple[str, str] | None:
    of_it = [one for one in recorded if one.low <= number <= one.high]
    if state is not None and number in held:
        return None
    replayed = [one for one in of_it if one.end == "delivered" and one.by == "operator"]
    if replayed:
        return "delivered", "operator"
    trimmed = any(one.end == "trimmed" for one in of_it)
    if state is not None:
        settled = number in state.received or number in state.cancelled
        if number >= state.next_number and not settled:
            # It was trimmed with its neighbours, and has not ended.
            trimmed = False
    became = ("trimmed", "") if trimmed else None
    for one in of_it:
        if one.end == "superseded":
            became = None
        elif one.end == "lost":
            became = "lost", one.by
    told = any(one.end == "delivered" and not one.by for one in of_it)
    received = state is not None and number in state.received
    return became or (("delivered", "") if told or received else None)


class _PlainOutbox:
    """Messages that were sent, as a list (S12): number → who is still to acknowledge it, with how
    often it went to each, and when it was sent last.
    """

    def __init__(self) -> None:
        self.next = 1
        self.parties: dict[str, int] = {}
        self.sent: dict[int, dict[str, Any]] = {}

    def send(self, to: tuple[str, ...], now_s: int) -> bool:
        size = sum(one["size"] for one in self.sent.values())
        if len(self.sent) >= 3 or size + 2 > 4:
            return False
        waiting = [*to, *(party for party in self.parties if party not in to)]
        for party in to:
            self.parties.setdefault(party, self.next)
        if waiting:
            self.sent[self.next] = {
                "waiting": waiting, "times": {}, "at": now_s, "size": 2,
                "only told": [party for party in waiting if party not in to],
            }  # fmt: skip
        self.next += 1
        return True

    def report(self, peer: str, seen: int, missing: tuple[int, ...], now_s: int) -> dict[str, Any]:
        answer = _nothing()
        for number in sorted(self.sent):
            one = self.sent[number]
            if peer not in one["waiting"]:
                continue
            if number <= seen:
                one["waiting"] = [name for name in one["waiting"] if name != peer]
                if not one["waiting"]:
                    del self.sent[number]
                    answer["acknowledged"].append(number)
            elif number in missing:
                self._again(number, [peer], now_s, answer)
        for number in missing:
            # Before it was a party there was nothing for it.
            if number >= self.parties.get(peer, 1):
                continue
            if number not in self.sent:
                if len(self.sent) >= 3:
                    break
                self.sent[number] = {
                    "waiting": [], "times": {}, "at": now_s, "size": 0, "only told": [],
                }  # fmt: skip
            one = self.sent[number]
            if peer not in one["waiting"]:
                one["waiting"] = [*one["waiting"], peer]
                one["only told"] = [*one["only told"], peer]
                answer["resend"].append((number, (peer,), one["times"].get(peer, 1)))
        return answer

    def tick(self, now_s: int, away: tuple[str, ...]) -> dict[str, Any]:
        answer = _nothing()
        for number in sorted(self.sent):
            to = [name for name in self.sent[number]["waiting"] if name not in away]
            self._again(number, to, now_s, answer)
        return answer

    def resend(self, peer: str, number: int, now_s: int) -> dict[str, Any]:
        answer = _nothing()
        if number in self.sent and peer in self.sent[number]["waiting"]:
            self._again(number, [peer], now_s, answer, at_once=True)
        return answer

    def _again(
        self,
        number: int,
        to: list[str],
        now_s: int,
        answer: dict[str, Any],
        *,
        at_once: bool = False,
    ) -> None:
        one = self.sent[number]
        if now_s < one["at"] + 2 and not at_once:
            return
        over = [name for name in to if one["times"].get(name, 1) >= 2]
        if over:
            answer["given up"].append((number, tuple(over)))
            one["waiting"] = [name for name in one["waiting"] if name not in over]
            if not one["waiting"]:
                del self.sent[number]
                return
        to = [name for name in to if name not in over]
        if to:
            one["times"] = {**one["times"], **{name: one["times"].get(name, 1) + 1 for name in to}}
            one["at"] = now_s
            answer["resend"].append((number, tuple(to), one["times"][to[0]]))


def _nothing() -> dict[str, Any]:
    return {"acknowledged": [], "resend": [], "given up": []}


_STEPS: Final = (
    ("send", ("a",)),
    ("send", ("b", "a")),
    ("send", ()),
    ("report", "a", 1, ()),
    ("report", "b", 0, (1, 2)),
    ("report", "a", 2, (3,)),
    ("resend", "a", 1),
    ("wait", ()),
    ("wait", ("a",)),
    ("restart",),
)


def outboxes() -> int:
    """What is kept, sent again and given up (S12): every history of five steps."""
    cases = 0
    settings = OutboxSettings(
        resend_after_s=2.0, limit_sent_count=2, limit_messages=3, limit_bytes=4
    )
    for history in sequences(_STEPS, 5):
        if history[0][0] != "send" or len(history) < 5:
            continue
        cases += 1
        outbox, plain, now_s = Outbox(settings), _PlainOutbox(), 10
        for step in history:
            now_s += 1
            _step(outbox, plain, step, now_s)
            if step[0] == "restart":
                outbox = Outbox(settings, outbox.checkpoint())
            kept = {
                one.number: (one.waiting_for, one.not_addressed, one.sent_at_us // _US)
                for one in outbox.checkpoint().sent
            }
            expected = {
                number: (one["waiting"], one["only told"], one["at"])
                for number, one in plain.sent.items()
            }
            same(kept, expected, history)
            same(outbox.last_number, plain.next - 1, history)
            times = [one["at"] + 2 for one in plain.sent.values()]
            same(outbox.due_us(), min(times) * _US if times else None, history)
    return cases


def _step(outbox: Outbox, plain: _PlainOutbox, step: tuple[Any, ...], now_s: int) -> None:
    match step:
        case ("send", to):
            taken = plain.send(to, now_s)
            try:
                outbox.append("id", 2, to, now_s * _US)
            except OutboxFullError:
                same(taken, False, step)
            else:
                same(taken, True, step)
        case ("report", peer, seen, missing):
            ranges = Ranges.of((1, seen)) if seen else Ranges()
            found = outbox.acknowledge(peer, ranges, Ranges.of_numbers(missing), now_s * _US)
            same(_told(found), _in_order(plain.report(peer, seen, missing, now_s)), step)
        case ("resend", peer, number):
            found = outbox.resend(peer, number, now_s * _US)
            same(_told(found), _in_order(plain.resend(peer, number, now_s)), step)
        case ("wait", away):
            found = outbox.tick(now_s * _US, away)
            same(_told(found), _in_order(plain.tick(now_s, away)), step)
        case _:
            pass


def _told(decision: OutboxDecision) -> dict[str, Any]:
    def count(one: OutboxMessage) -> int:
        return one.sent_count_to(one.waiting_for[0])

    return _in_order(
        {
            "acknowledged": decision.acknowledged,
            "resend": [(one.number, tuple(one.waiting_for), count(one)) for one in decision.resend],
            "given up": [(one.number, tuple(one.waiting_for)) for one in decision.given_up],
        }
    )


def _in_order(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(values) for name, values in answer.items()}
