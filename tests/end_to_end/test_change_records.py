"""Record types as TR-548 v3.2 defines them (5.2): what a store holds of sequences of records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from instep.model.streams import StreamInfo
from instep_sql import SqlStore
from instep_tapi.source import TapiSource
from tests.instep_tapi.small_provider_kit import (
    DEADLINE_S,
    SmallProvider,
    context_of,
    running,
    stated,
)

pytestmark = pytest.mark.asyncio

A = {
    "uuid": "n1",
    "operational-state": "ENABLED",
    "lifecycle-state": "INSTALLED",
    "name": [{"value-name": "a", "value": "1"}, {"value-name": "b", "value": "2"}],
    "supported-layer-protocol-name": ["ODU", "DSR"],
}
B = {"uuid": "n1", "operational-state": "DISABLED", "name": [{"value-name": "a", "value": "9"}]}
MORE = {"uuid": "n1", "vendor:x": 1}
STATE = {"uuid": "n1", "operational-state": "DISABLED"}
LISTS = {
    "uuid": "n1",
    "supported-layer-protocol-name": ["ODU"],
    "name": [{"value-name": "a", "value": "1"}],
}
MERGED_2_1_3 = A | {
    "operational-state": "DISABLED",
    "name": [{"value-name": "a", "value": "9"}, {"value-name": "b", "value": "2"}],
}


def log_of(*statements: tuple[str, dict[str, Any]], first: int = 1) -> list[bytes]:
    return [
        stated(n, "n1", "NODE", body, kind, parent=[])
        for n, (kind, body) in enumerate(statements, first)
    ]


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the profile of the streams that are found."""

    def set_profile(tapi: str) -> None:
        discover = TapiSource.discover

        async def discovered(source: TapiSource) -> Sequence[StreamInfo]:
            found = await discover(source)
            return [replace(one, details={**one.details, "tapi": tapi}) for one in found]

        monkeypatch.setattr(TapiSource, "discover", discovered)

    return set_profile


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 's.db'}", journal="bodies")
    yield opened
    await opened.close()


async def read(provider: SmallProvider, store: SqlStore, *later: bytes) -> dict[str, Any]:
    """What a store holds of the log, and of what comes later, record by record. It must be read to
    the end, and nothing of it may be unreadable or a deviation.
    """
    async with running(provider, store):
        for one in later:
            provider.say(one)
            await committed(store, one)
        await committed(store, provider.log[-1])
        held = {one.key: json.loads(one.body) async for one in store.reader.entities()}
        (stream,) = await store.reader.streams()
        assert stream.deviations == {}
        assert [one async for one in store.reader.quarantine()] == []
    return held


async def committed(store: SqlStore, record: bytes) -> None:
    (header, *_) = json.loads(record).values()
    (token,) = [value for name, value in header.items() if name.endswith("token")]
    async with asyncio.timeout(DEADLINE_S):
        while [one.position.token for one in await store.reader.streams()] != [token]:
            await asyncio.sleep(0.02)


ANY_PROFILE: list[Any] = [
    pytest.param([("CREATE", A), ("UPDATE", B)], B, id="an UPDATE replaces"),
    pytest.param([("CREATE", A), ("CREATE", B)], B, id="a CREATE replaces"),
    pytest.param([("CREATE", A), ("CHANGE", LISTS)], A | LISTS, id="a list of a CHANGE is entire"),
    pytest.param([("CREATE", A), ("CHANGE", STATE)], A | STATE, id="a CHANGE updates"),
    pytest.param(
        [("CREATE", A), ("CHANGE", STATE), ("CHANGE", LISTS), ("UPDATE", B), ("CHANGE", MORE)],
        B | MORE,
        id="any mix of CHANGE and UPDATE",
    ),
    pytest.param(
        [("CREATE", A), ("CHANGE", {"state": {"x": 1}}), ("CHANGE", {"state": {"y": 2}})],
        A | {"state": {"x": 1, "y": 2}},
        id="the skeleton that leads to a property",
    ),
]
"""Record types and bodies of one entity, and what is stored of it in the end (v3.2, 5.2)."""


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    ("tapi", "records"), [("2.1.3", "CHANGE_ONLY"), ("2.6", "CHANGE_ONLY"), ("2.6", "WHOLE_ENTITY")]
)
@pytest.mark.parametrize(("statements", "expected"), ANY_PROFILE)
async def test_v3_2_5_2_the_record_type_tells_what_is_whole(
    statements: list[Any],
    expected: Any,
    tapi: str,
    records: str,
    live: bool,
    profile: Any,
    store: SqlStore,
) -> None:
    profile(tapi)
    log = log_of(*statements)
    began = 1 if live else len(log)
    provider = SmallProvider("NODE", log=log[:began], storage="COMPACTED", records=records)
    assert await read(provider, store, *log[began:]) == {"n1": expected}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("tapi", "expected"), [("2.1.3", MERGED_2_1_3), ("2.6", B)])
@pytest.mark.parametrize("change", [(), (("CHANGE", STATE),)])
async def test_v3_2_5_2_a_create_update_of_a_change_only_stream_is_whole_since_2_4(
    change: Any, tapi: str, expected: Any, live: bool, profile: Any, store: SqlStore
) -> None:
    profile(tapi)
    log = log_of(("CREATE_UPDATE", A), *change, ("CREATE_UPDATE", B))
    began = 1 if live else len(log)
    provider = SmallProvider("NODE", log=log[:began], storage="COMPACTED", records="CHANGE_ONLY")
    assert await read(provider, store, *log[began:]) == {"n1": expected}


@pytest.mark.parametrize("key", ["n1", "key of its own"])
async def test_v3_2_5_2_a_change_updates_what_a_baseline_has_shown(
    key: str, profile: Any, store: SqlStore
) -> None:
    profile("2.6")
    provider = SmallProvider("NODE", records="CHANGE_ONLY")
    topology = {"topology": [{"uuid": "t", "node": [A]}]}
    provider.context = context_of({"tapi-topology:topology-context": topology})
    changes = [stated(n, key, "NODE", one, "CHANGE", []) for n, one in enumerate((STATE, LISTS), 1)]
    held = await read(provider, store, *changes)
    assert held == {key: A | STATE | LISTS}


@pytest.mark.parametrize(
    ("storage", "live"), [("COMPACTED", False), ("COMPACTED", True), ("TRUNCATED", True)]
)
async def test_v3_2_3_10_an_information_record_states_no_entity_and_moves_the_position(
    storage: str, live: bool, store: SqlStore
) -> None:
    about = {"uuid": "n1"}
    log = [
        *log_of(("CREATE_UPDATE", A)),
        stated(2, "info-1", "NODE", about, "INFORMATION", []),
        stated(3, "n1", "NODE", about, "INFORMATION", []),
        stated(4, "info-2", kind="INFORMATION"),
    ]
    began = len(log) if not live else 0 if storage == "TRUNCATED" else 1
    provider = SmallProvider("NODE", log=log[:began], storage=storage)
    topology = {"topology": [{"uuid": "t", "node": [A]}]}
    provider.context = context_of({"tapi-topology:topology-context": topology})
    assert await read(provider, store, *log[began:]) == {"n1": A}


async def test_rfc_7951_4_the_members_of_a_bare_record_name_their_module(store: SqlStore) -> None:
    bare = [json.loads(one) for one in log_of(("CREATE", A), ("UPDATE", B))]
    log = [
        json.dumps({f"tapi-streaming:{name}": value for name, value in one.items()}).encode()
        for one in bare
    ]
    provider = SmallProvider("NODE", log=log, storage="COMPACTED")
    assert await read(provider, store) == {"n1": B}
