"""The short way of the usual messages has the answers of the long one, and delivers the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.instep_soap.soap_kit import count_templates
from tests.instep_wsrm.rm_kit import (
    RM_10,
    RM_11,
    S11,
    S12,
    WSA_04,
    about,
    envelope,
    message,
    ranges,
    running,
    sequence,
)
from tests.properties_kit import few

HERE = "urn:the-sequence"
"""Stands for the identifier that the destination gave."""
USUAL: dict[str, str] = {}
SHAPES = (
    USUAL,
    USUAL,
    {"action": ""},
    {"message_id": ""},
    {"message_id": "urn:a&amp;b"},
    {"soap": S11},
    {"rm": RM_10},
    {"wsa": WSA_04},
    {"action": "urn:rmpeer/echo"},
)
MORE = (
    "",
    "",
    about("AckRequested", HERE),
    about("SequenceCancel", HERE, ranges((2, 3))),
    about("SequenceFill", HERE, ranges((1, 2))),
    "<x:new xmlns:x='urn:x' s:mustUnderstand='1'/>",
    about("SequenceAcknowledgement", "urn:other", ranges((1, 1), local="AcknowledgementRange")),
    f"<a:ReplyTo><a:Address>{WSA_04}</a:Address></a:ReplyTo>",
)
HEADERS = st.one_of(
    st.builds(sequence, st.just(HERE), st.integers(1, 6)),
    st.builds(
        sequence,
        st.sampled_from([HERE, "urn:unknown"]),
        st.sampled_from([0, "x", 2**63 - 1, 2**63, " 2 "]),
        st.sampled_from(["", "<w:LastMessage/>", ranges((1, 2))]),
    ),
    st.just(""),
)
BODIES = (
    message(1),
    message(1),
    message(2),
    "",
    message(1) * 2,
    about("CloseSequence", HERE),
    f"<s:Fault><s:Code><s:Value>s:Sender</s:Value></s:Code></s:Fault>{message(1)}",
)
ENVELOPES = st.builds(
    lambda shape, header, more, body: envelope(header + more, body, **shape),
    st.sampled_from(SHAPES),
    HEADERS,
    st.sampled_from(MORE),
    st.sampled_from(BODIES),
)


async def outcome(
    envelopes: Sequence[bytes], *, fast_path: bool
) -> tuple[list[tuple[int, str]], list[tuple[int, str, bytes]]]:
    """The answers to envelopes, one after the other, and what was delivered."""
    async with running(fast_path=fast_path) as site:
        identifier = await site.create()
        answers = []
        for raw in envelopes:
            answer = await site.post(raw.replace(HERE.encode(), identifier.encode()))
            answers.append((answer.status, answer.raw.decode().replace(identifier, HERE)))
        found = [(one.number, one.id, one.body) for one in await site.delivered(identifier)]
    return answers, [(number, name.replace(identifier, HERE), body) for number, name, body in found]


@few(5, many=300)
@given(st.lists(ENVELOPES, min_size=1, max_size=8))
@example([envelope(sequence(HERE, n), message(n)) for n in (1, 3, 2, 2, 4, 5, 7, 6)])
@example(
    [
        envelope(sequence(HERE, 1) + about("SequenceCancel", HERE, ranges((2, 2))), message(1)),
        envelope(sequence(HERE, 2), message(2)),
        envelope(sequence(HERE, 3), message(3)),
        envelope("", about("CloseSequence", HERE)),
        envelope(sequence(HERE, 4), message(4)),
        envelope("", about("TerminateSequence", HERE)),
        envelope(sequence(HERE, 5), message(5)),
    ]
)
def test_both_ways_answer_and_deliver_the_same(envelopes: list[bytes]) -> None:
    async def both() -> None:
        fast = await outcome(envelopes, fast_path=True)
        assert fast == await outcome(envelopes, fast_path=False)

    asyncio.run(both())


@pytest.mark.asyncio
@pytest.mark.parametrize("rm", [RM_10, RM_11])
@pytest.mark.parametrize("soap", [S11, S12])
async def test_the_comparison_sees_answers_and_messages(rm: str, soap: str) -> None:
    sent = [envelope(sequence(HERE, n), message(n), rm=rm, soap=soap) for n in (1, 2)]
    answers, found = await outcome(sent, fast_path=True)
    assert [status for status, _ in answers] == [200, 200]
    assert 'Lower="1" Upper="2"' in answers[1][1]
    assert [number for number, _, _ in found] == [1, 2]


@pytest.mark.asyncio
@pytest.mark.parametrize("rm", [RM_10, RM_11])
async def test_the_headers_of_a_sequence_are_read_by_a_template(
    rm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = count_templates(monkeypatch)
    sent = [envelope(sequence(HERE, n), message(n), rm=rm) for n in range(1, 6)]
    answers, delivered = await outcome(sent, fast_path=True)
    assert [status for status, _ in answers] == [200] * 5
    assert [number for number, _, _ in delivered] == [1, 2, 3, 4, 5]
    assert found[-3:] == [True] * 3
