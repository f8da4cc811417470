"""What a sink, a feed, a source and a reader answer that implement no more than they must."""

from __future__ import annotations

import pytest

from instep import AuditError, ConfigurationError, Consumer, Receiver
from instep.errors import BaselineError
from instep.model import StreamState
from instep.ports import (
    Feed,
    LeaseReader,
    Listener,
    MessageReader,
    Sink,
    Source,
    StoreReader,
    SweepReader,
)
from instep.ports.reader import Capability
from tests.instep.scripted_source_kit import ScriptedSource, info

pytestmark = pytest.mark.asyncio


def least(port: type) -> type:
    """A class with the abstract methods of a port, which are not called here."""
    methods = {name: lambda *_, **__: None for name in port.__abstractmethods__}  # type: ignore[attr-defined]
    return type("Least", (port,), methods)


@pytest.fixture
def sink() -> Sink:
    made: Sink = least(Sink)()
    return made


@pytest.fixture
def reader() -> StoreReader:
    made: StoreReader = least(StoreReader)()
    return made


async def test_a_sink_is_one_that_keeps_current_state_and_all_statements_alone(sink: Sink) -> None:
    assert (sink.latest_only, sink.lease, sink.messages()) == (False, None, None)
    assert list(await sink.known_streams()) == []
    assert await sink.is_sweep_released("s", 1) is False
    await sink.report([], 10.0)
    assert await sink.identities("s") is None
    await sink.mark_offered("s", offered=False)
    with pytest.raises(ConfigurationError, match="this kind of store retires no streams"):
        await sink.retire("s")
    with pytest.raises(AuditError, match="alarms: this kind of store cannot be audited"):
        sink.audit(info())


async def test_a_consumer_needs_no_more_of_a_sink(sink: Sink) -> None:
    assert Consumer("c", ScriptedSource(), sink).health().pair is None


async def test_a_receiver_needs_an_inbox(sink: Sink) -> None:
    listener: Listener = object()  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="c: this sink keeps no numbered messages"):
        Receiver("c", listener, sink)


async def test_a_feed_takes_silence_at_its_word() -> None:
    feed: Feed = least(Feed)()
    assert (feed.clock_offset_us, feed.unheard_s, feed.under_way_s) == (0, 0.0, 0.0)
    await feed.ping()


async def test_a_source_has_a_log_alone() -> None:
    source: Source = least(Source)()
    assert await source.state(info()) is StreamState.UNKNOWN
    with pytest.raises(BaselineError, match="alarms: this source reads no current state"):
        source.baseline(info(), 0)


@pytest.mark.parametrize(
    ("capability", "lacks"),
    [
        (SweepReader, "holds no sweeps"),
        (LeaseReader, "keeps no lease"),
        (MessageReader, "keeps no messages"),
    ],
)
async def test_a_reader_has_what_it_inherits(
    reader: StoreReader, capability: type[Capability], lacks: str
) -> None:
    with pytest.raises(ConfigurationError, match=lacks):
        capability.of(reader)
    methods = dict.fromkeys(capability.__abstractmethods__)
    able = type("Able", (capability, type(reader)), methods)()
    assert capability.of(able) is able


async def test_nothing_abstract_is_left_out() -> None:
    class Half(Feed):
        """Without `receive`."""

    with pytest.raises(TypeError, match="receive"):
        Half()  # type: ignore[abstract]
