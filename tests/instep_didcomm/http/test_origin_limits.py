"""What strangers can cause is bounded by endpoint and in all; who does not answer is left aside."""

from __future__ import annotations

from instep_didcomm.http.origin_limits import OriginLimits

A, B = "http://a:1", "http://b:1"


def reply(limits: OriginLimits, origin: str, now_s: float, *, accepted: bool = True) -> str:
    """A reply that is answered at once; returns why it was not made."""
    reason = limits.begin(origin, now_s, chosen_by_peer=True)
    if not reason:
        limits.end(origin, now_s, answered=True, accepted=accepted)
    return reason


def test_an_endpoint_that_accepts_nothing_gets_five_replies_a_minute() -> None:
    limits = OriginLimits()
    assert [bool(reply(limits, A, 0.0, accepted=False)) for _ in range(7)] == [False] * 5 + [
        True
    ] * 2
    assert reply(limits, B, 0.0) == ""
    assert "last minute" in reply(limits, A, 11.0, accepted=False)
    assert reply(limits, A, 12.0, accepted=False) == ""
    assert reply(limits, A, 13.0, accepted=False) != ""


def test_one_that_accepts_gets_more() -> None:
    limits = OriginLimits()
    assert sum(not reply(limits, A, 0.0) for _ in range(1_000)) == 300


def test_our_own_messages_are_not_limited_by_what_peers_cause() -> None:
    limits = OriginLimits()
    for _ in range(200):
        assert limits.begin(A, 0.0, chosen_by_peer=False) == ""
    assert limits.begin(B, 0.0, chosen_by_peer=True) == ""


def test_strangers_leave_room_for_those_that_answer() -> None:
    limits = OriginLimits()
    reply(limits, A, 0.0)
    under_way = [limits.begin(f"http://{n}:1", 1.0, chosen_by_peer=True) for n in range(100)]
    assert under_way.count("") == 24
    assert reply(limits, A, 1.0) == ""
    limits.end("http://0:1", 2.0, answered=False, accepted=False)
    assert limits.begin(B, 2.0, chosen_by_peer=True) == ""
    assert limits.begin("http://c:1", 2.0, chosen_by_peer=True) != ""


def test_of_one_endpoint_two_replies_are_under_way() -> None:
    limits = OriginLimits()
    assert [bool(limits.begin(A, 0.0, chosen_by_peer=True)) for _ in range(3)] == [
        False,
        False,
        True,
    ]


def test_who_does_not_answer_is_left_aside_for_longer_each_time_and_tried_alone() -> None:
    limits, now_s, waits = OriginLimits(), 0.0, list[float]()
    for _ in range(6):
        assert limits.begin(A, now_s, chosen_by_peer=False) == ""
        if waits:
            assert "left aside" in limits.begin(A, now_s, chosen_by_peer=False)
        limits.end(A, now_s, answered=False, accepted=False)
        began_s = now_s
        while limits.begin(A, now_s, chosen_by_peer=False):
            now_s += 1.0
        limits.end(A, now_s, answered=False, accepted=False)
        waits.append(now_s - began_s)
        now_s += 60.0
    assert waits[:2] == [5.0, 20.0]
    assert waits[-1] == 60.0
    assert limits.begin(A, now_s, chosen_by_peer=False) == ""
    limits.end(A, now_s, answered=True, accepted=True)
    assert [limits.begin(A, now_s, chosen_by_peer=False) for _ in range(3)] == [""] * 3


def test_the_memory_is_bounded() -> None:
    limits = OriginLimits()
    for n in range(12_000):
        reply(limits, f"http://{n}:1", 0.0)
    assert repr(limits) == "<OriginLimits 10000 origins, 0 strangers>"
