"""A report that is taken without a task has the answer of one that is handled by the server's
general path, and states the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from instep import Phase, Position
from instep.errors import SourceError, UnreachableError
from instep.model.records import Record
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from instep_sdpi import read_options
from instep_sdpi.endpoint import NotificationEndpoint
from instep_sdpi.session import ReportSession
from instep_sdpi.wire.names import MdibPart
from tests.instep_sdpi.sdpi_kit import envelope, metric_report, report
from tests.properties_kit import few

END = (
    "<wse:SubscriptionEnd><wse:Status>SourceShuttingDown</wse:Status><wse:Reason>.</wse:Reason>"
    "</wse:SubscriptionEnd>"
)
REPORTS = st.builds(
    lambda number, version: envelope(metric_report(str(version), version), number),
    st.sampled_from(["1", "2", "3", "4", " 2 ", "0", "-1", "01", "1" + "0" * 30, None]),
    st.integers(1, 5),
)
OTHERS = st.sampled_from(
    [
        b"<no envelope",
        envelope(""),
        envelope(END),
        envelope("<msg:Unknown/>", "1"),
        envelope(report("EpisodicMetricReport", "", 1, "urn:another"), "2"),
        envelope(report("EpisodicMetricReport", "<msg:ReportPart/>", 1, ""), "1"),
    ]
)


async def chunked(raw: bytes) -> AsyncIterator[bytes]:
    """A body that the fast path leaves to the general one."""
    yield raw


async def outcome(
    envelopes: Sequence[bytes], *, fast_path: bool
) -> tuple[list[tuple[int, str]], list[object]]:
    """The answers to envelopes, one after the other, and what they stated."""
    options = read_options({"provider": "http://127.0.0.1:1", "listen": "127.0.0.1:0"}, "source")
    endpoint = NotificationEndpoint(options, None, "source")
    session = ReportSession("mdib", frozenset(MdibPart), SequencedFeedSettings(reorder_window_s=0))
    stated: list[object] = []

    async def commit() -> None:
        feed = session.feed
        try:
            while True:
                chunk = await feed.receive()
                for one in chunk.records:
                    assert isinstance(one, Record)
                    stated.append((one.key, one.offset, one.body))
                stated.extend((bad.raw, bad.reason) for bad in chunk.unreadable)
                stated.append(chunk.realign)
                offsets = {feed.session: max(record.offset for record in chunk.records)}
                feed.committed(Position(phase=Phase.ALIGNED, offsets=offsets))
        except (SourceError, ValueError) as error:
            stated.append(type(error))
        finally:
            feed.close()

    session.feed.committed(Position(phase=Phase.ALIGNING))
    committing = asyncio.create_task(commit())
    answers = []
    address = await endpoint.register(session)
    async with aiohttp.ClientSession() as client:
        for path, raw in [(f"{address}0", envelope("")), *((address, one) for one in envelopes)]:
            body = raw if fast_path else chunked(raw)
            async with client.post(path, data=body) as response:
                answers.append((response.status, await response.text()))
    session.feed.fail(UnreachableError("all was sent"))
    await committing
    await endpoint.stop()
    return answers, stated


@few(6, many=300)
@given(st.lists(st.one_of(REPORTS, REPORTS, REPORTS, OTHERS), min_size=1, max_size=6))
@example([envelope(metric_report(str(one), one), str(one)) for one in (1, 2, 2, 3)])
@example([envelope(metric_report(value, 1), "1") for value in ("1", "1", "2")])
@example([envelope(metric_report("1", 1), "1"), envelope(END)])
def test_both_ways_answer_and_state_the_same(envelopes: list[bytes]) -> None:
    async def both() -> None:
        fast = await outcome(envelopes, fast_path=True)
        assert fast == await outcome(envelopes, fast_path=False)

    asyncio.run(both())


@pytest.mark.asyncio
async def test_the_comparison_sees_answers_and_reports() -> None:
    sent = [envelope(metric_report(str(one), one), str(one)) for one in (1, 2, 2, 1)]
    answers, stated = await outcome(sent, fast_path=True)
    assert [status for status, _ in answers] == [404, 202, 202, 202, 500]
    keys = [one[:2] for one in stated if isinstance(one, tuple)]
    assert keys == [("state/m1", 1), ("state/m1", 2)]
    assert any("went back" in one for one in stated if isinstance(one, str))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("listen", "notify_to", "served", "refused"),
    [
        ("127.0.0.1:0", "", ["/{name}", "/{name}?a=1", "/%{first:02x}{rest}"], ["/x/{name}"]),
        (
            "127.0.0.1:0/r",
            "",
            ["/r/{name}"],
            ["/{name}", "/r//{name}", "/r/x/{name}", "/r%2F{name}"],
        ),
        ("127.0.0.1:0", "http://proxy/from/far", ["/{name}", "/from/far/{name}"], ["/far/{name}"]),
    ],
)
async def test_a_subscription_has_exactly_its_paths(
    listen: str, notify_to: str, served: list[str], refused: list[str]
) -> None:
    given = {"provider": "http://127.0.0.1:1", "listen": listen}
    options = read_options(given | ({"notify_to": notify_to} if notify_to else {}), "source")
    endpoint = NotificationEndpoint(options, None, "source")
    session = ReportSession("mdib", frozenset(MdibPart), SequencedFeedSettings(reorder_window_s=0))
    await endpoint.register(session)
    name = session.feed.session
    refused_at_once = envelope(metric_report("1"), "0")
    paths = {"name": name, "first": ord(name[0]), "rest": name[1:]}
    try:
        async with aiohttp.ClientSession() as client:
            for path in [*served, *refused, "//{name}", "/{name}/", "/{name}x", "/"]:
                base = endpoint.address.split("/")[2]
                at = URL(f"http://{base}{path.format(**paths)}", encoded=True)
                for body in (refused_at_once, chunked(refused_at_once)):
                    async with client.post(at, data=body) as response:
                        assert (response.status == 404) == (path not in served), at
    finally:
        await endpoint.stop()
