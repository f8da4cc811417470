"""Liveness in given time: Pongs on and on, death only by an unanswered Ping (TR-548 ST-0.4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.feeds.keep_alive import ANSWER_S, Due, KeepAlive, SignsOfLife


def test_pongs_come_at_each_interval_whatever_is_received() -> None:
    keep_alive = KeepAlive(15, 60, now_s=0)
    pongs = []
    for second in range(100):
        keep_alive.note_activity(second)
        if Due.PONG in keep_alive.due(second):
            pongs.append(second)
    assert pongs == [15, 30, 45, 60, 75, 90]


def test_silence_is_asked_and_only_an_unanswered_ping_is_death() -> None:
    keep_alive = KeepAlive(1_000, 60, now_s=0)
    assert keep_alive.due(59) == []
    assert keep_alive.due(60) == [Due.PING]
    assert keep_alive.due(60 + ANSWER_S - 1) == []
    keep_alive.note_activity(70)
    assert keep_alive.due(60 + ANSWER_S) == []
    assert keep_alive.due(130) == [Due.PING]
    assert keep_alive.due(130 + ANSWER_S) == [Due.DEAD]


def test_a5_a_sign_of_life_within_a_message_proves_no_silence() -> None:
    signs = SignsOfLife(0)
    signs.note(1, under_way=False)
    signs.note(2, under_way=True)
    signs.note(9, under_way=True)
    assert (signs.last_s, signs.idle_s) == (9, 1)
    signs.note(10, under_way=False)
    assert (signs.last_s, signs.idle_s) == (10, 10)


@given(
    st.lists(st.floats(0.01, 20), max_size=50),
    st.floats(0.1, 30),
    st.floats(0.1, 100),
)
def test_next_is_when_to_look_again(
    steps_s: list[float], pong_interval_s: float, dead_peer_s: float
) -> None:
    """Whoever wakes at `next_s` finds something due; before it nothing is."""
    keep_alive = KeepAlive(pong_interval_s, dead_peer_s, now_s=0)
    now_s = 0.0
    for step_s in steps_s:
        wake_s = keep_alive.next_s()
        if now_s + step_s < wake_s:
            now_s += step_s
            assert keep_alive.due(now_s) == []
            keep_alive.note_activity(now_s)
        else:
            now_s = max(now_s, wake_s) + 1e-6
            due = keep_alive.due(now_s)
            assert due
            if Due.DEAD in due:
                return
