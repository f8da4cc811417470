"""Two controllers in one PostgreSQL: whatever a command reads, it says whose it is."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from instep import Consumer
from instep_sql import SqlStore
from instep_tapi import TapiSource, read_options
from instep_tapi_provider import Context, Provider
from tests.instep.cli.cli_kit import instep, lines
from tests.postgres_kit import Missing, serving

NAMES = ("east", "west")
PORT = "0c7c1c0e-6ad5-4f0c-8a2f-3f1a52a5c0d1"
NODE = "5f4dcc3b-5aa7-4d25-9e4e-1f2a7d0b6c11"

CLASSES = ["NODE", "NODE_EDGE_POINT", "LINK", "CONDITION_DETECTOR"]
"""What is kept: the topology is not, so it is a skeleton."""


def network(place: str) -> Context:
    """A node with a port, of the same uuids at both providers, and a link to what is missing."""
    ports = [{"uuid": PORT, "name": [{"value-name": "name", "value": f"port {place}"}]}]
    node = {"uuid": NODE, "owned-node-edge-point": ports}
    ends = [
        {"topology-uuid": "t", "node-uuid": NODE, "node-edge-point-uuid": uuid}
        for uuid in (PORT, "a6c2a1a0-7f2f-4a55-9d0a-22a7b7e0f001")
    ]
    link = {"uuid": "1d8c3c71-6a0f-4c3c-8b57-0d7b3a4f9e02", "node-edge-point": ends}
    topology = {"uuid": "t", "node": [node], "link": [link]}
    return Context({"uuid": "c", "tapi-topology:topology-context": {"topology": [topology]}})


async def follow(url: str) -> None:
    """Keep one database in step with two providers until both are aligned."""
    async with AsyncExitStack() as stack:
        for name in NAMES:
            provider = await stack.enter_async_context(Provider(network(name)))
            provider.raise_alarm(NODE, "FANFAIL")
            options = {"endpoints": [provider.url], "streams": {"only_classes": CLASSES}}
            source = TapiSource(read_options(options, name))
            store = SqlStore(url, journal="changes", alarms=True, references=True)
            consumer = await stack.enter_async_context(Consumer(name, source, store))
            await consumer.aligned(timeout_s=60)
            provider.set_faults(malformed_every=1)
            provider.update(PORT, {"operational-state": "ENABLED"})
            async with asyncio.timeout(60):
                while not any(stream.quarantined for stream in consumer.health().streams):
                    await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """One PostgreSQL database of two controllers."""
    try:
        with serving() as server:
            url = server.create()
            asyncio.run(follow(url))
            yield url
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["entities"],
        ["entities", "--count"],
        ["entity", "show", NODE],
        ["changes"],
        ["alarms"],
        ["references", "children", NODE],
        ["references", "path", PORT],
        ["references", "referrers", PORT],
        ["references", "dangling"],
        ["references", "skeletons"],
        ["quarantine", "list"],
    ],
    ids=" ".join,
)
def test_a_command_says_whose_it_is(
    store: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    both, west = [*command, "--store", store], [*command, "--store", store, "--consumer", "west"]
    of_both = lines(instep(*both, "--format", "jsonl"))
    of_west = lines(instep(*west, "--format", "jsonl"))
    assert {line["consumer"] for line in of_both} == set(NAMES)
    for line in of_both + of_west:
        for growing in ("behind_s", "heard_s", "margin_s"):
            line.pop(growing, None)
    assert of_west == [line for line in of_both if line["consumer"] == "west"]
    assert all(name in instep(*both).stdout for name in NAMES)
    assert "east" not in instep(*west).stdout


def test_an_entry_of_the_quarantine_says_whose_it_is(store: str) -> None:
    for listed in lines(instep("quarantine", "list", "--store", store, "--format", "jsonl")):
        show = ["quarantine", "show", str(listed["id"]), "--store", store]
        [shown] = lines(instep(*show, "--format", "jsonl"))
        assert shown["consumer"] == listed["consumer"]
        assert listed["consumer"] in instep(*show).stdout
