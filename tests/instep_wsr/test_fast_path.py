"""The short way of the usual messages has the answers of the long one, and delivers the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.instep_soap.soap_kit import count_templates
from tests.instep_wsr.wsr_kit import (
    GROUP,
    ORDERED,
    S11,
    S12,
    UNORDERED,
    body,
    envelope,
    poll,
    request,
    running,
)
from tests.properties_kit import few

FUTURE, PAST = "2050-01-01T00:00:00Z", "2001-01-01T00:00:00Z"
NUMBERS = st.one_of(st.integers(0, 5), st.sampled_from([None, -1, "x", 2**63, " 1 "]))
REQUESTS = st.builds(
    lambda number, features, expires, pattern, last, more: request(
        number, features=features, expires=expires, pattern=pattern, last=last, more=more
    ),
    NUMBERS,
    st.sampled_from([ORDERED, ORDERED, UNORDERED, "", "<w:MessageOrder/>"]),
    st.sampled_from([FUTURE, FUTURE, FUTURE, PAST, "never"]),
    st.sampled_from(["Response", "Response", "Response", "Poll", "Callback", "None"]),
    st.sampled_from(["", "", "true", "maybe"]),
    st.sampled_from(["", "", 'groupMaxIdleDuration="PT1H"']),
)
MORE = (
    "",
    "",
    poll(),
    "<w:Response/>",
    "<x:new xmlns:x='urn:x' s:mustUnderstand='1'/>",
)
ENVELOPES = st.builds(
    lambda headers, more, content, soap: envelope(headers + more, content, soap=soap),
    st.one_of(REQUESTS, st.just("")),
    st.sampled_from(MORE),
    st.sampled_from([body(1), body(1), body(2), "", body(1) * 2]),
    st.sampled_from([S11, S12]),
)


async def outcome(
    envelopes: Sequence[bytes], *, fast_path: bool
) -> tuple[list[tuple[int, bytes]], list[tuple[int, str, bytes]]]:
    """The answers to envelopes, one after the other, and what was delivered."""
    async with running(fast_path=fast_path, max_expiry_s=1e9) as site:
        answers = [await site.post(raw) for raw in envelopes]
        found = [(one.number, one.id, one.body) for one in await site.delivered(GROUP)]
    return [(answer.status, answer.raw) for answer in answers], found


def sent(*numbers: int) -> list[bytes]:
    return [envelope(request(n, expires=FUTURE), body(n)) for n in numbers]


@few(5, many=300)
@given(st.lists(ENVELOPES, min_size=1, max_size=8))
@example(sent(0, 2, 1, 1, 3, 4, 6, 5))
@example([*sent(0, 2), envelope(request(1, expires=PAST), body(1)), *sent(1, 3)])
@example([*sent(0, 1), envelope(request(2, expires=FUTURE, last="1"), body(2)), *sent(3)])
def test_both_ways_answer_and_deliver_the_same(envelopes: list[bytes]) -> None:
    async def both() -> None:
        fast = await outcome(envelopes, fast_path=True)
        assert fast == await outcome(envelopes, fast_path=False)

    asyncio.run(both())


@pytest.mark.asyncio
async def test_the_comparison_sees_answers_and_messages() -> None:
    answers, found = await outcome(sent(0, 1), fast_path=True)
    assert [status for status, _ in answers] == [200, 200]
    assert b'from="0" to="1"' in answers[1][1]
    assert [number for number, _, _ in found] == [0, 1]


@pytest.mark.asyncio
async def test_the_headers_of_a_group_are_read_by_a_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = count_templates(monkeypatch)
    answers, delivered = await outcome(sent(0, 1, 2, 3, 4, 5), fast_path=True)
    assert [status for status, _ in answers] == [200] * 6
    assert [number for number, _, _ in delivered] == [0, 1, 2, 3, 4, 5]
    assert found[-3:] == [True] * 3
