"""Large answers are stated in a process of their own, with the same result as in this one."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from instep.model.records import Record
from instep_tapi.restconf import baseline_process
from instep_tapi.restconf.baseline_process import stated_pages
from instep_tapi.restconf.baseline_rows import BaselineScope, UnreadableAnswer, pages_of

pytestmark = pytest.mark.asyncio

NODES = frozenset({"NODE", "NODE_EDGE_POINT"})
WANTED = BaselineScope("s", 42, NODES, everything=False, cut=NODES)


def context(nodes: int) -> bytes:
    """A context of so many nodes, of 500 bytes each."""
    ports = [{"uuid": "p", "name": [{"value-name": "n", "value": "x" * 400}]}]

    def node(n: int) -> dict[str, Any]:
        own = [{**port, "uuid": f"{port['uuid']}{n}"} for port in ports]
        return {"uuid": f"n{n}", "owned-node-edge-point": own}

    topology = {"uuid": "t", "node": [node(n) for n in range(nodes)]}
    return json.dumps({"tapi-topology:topology-context": {"topology": [topology]}}).encode()


async def stated(body: bytes, seen: set[tuple[str, str]] | None = None) -> list[Record]:
    pages = stated_pages(body, WANTED, set() if seen is None else seen)
    return [record async for page in pages for record in page.records]


def children() -> set[int]:
    """The processes of baselines that have this one for a parent; other tests have others."""
    tasks = Path("/proc/self/task").iterdir()
    found = {int(one) for task in tasks for one in (task / "children").read_text().split()}
    return {one for one in found if b"baseline_process" in command_of(one)}


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.fixture
def by_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_process, "_INLINE_BYTES", 0)


@pytest.mark.usefixtures("by_child")
async def test_a_child_states_what_the_process_itself_would(
    capfd: pytest.CaptureFixture[str],
) -> None:
    body = context(2_500)
    here: set[tuple[str, str]] = {("NODE", "n7")}
    there = set(here)
    expected = [record for page in pages_of(body, WANTED, here) for record in page.records]
    assert len(expected) == 4_999
    assert await stated(body, there) == expected
    assert there == here
    assert children() == set()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("by_child")
@pytest.mark.parametrize(
    ("body", "text", "retriable"),
    [
        (b'{"cut', "cut short or no JSON", True),
        (b'{"topology":' * 70 + b"[]" + b"}" * 70, "nested more than", False),
    ],
)
async def test_what_a_child_cannot_state_is_the_same_error(
    body: bytes, text: str, retriable: bool
) -> None:
    with pytest.raises(UnreadableAnswer, match=text) as raised:
        await stated(body)
    assert raised.value.retriable is retriable


@pytest.mark.usefixtures("by_child")
async def test_a_child_that_dies_is_an_error_that_may_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(UnreadableAnswer, match="has ended") as raised:
        await stated(context(3))
    assert raised.value.retriable


@pytest.mark.usefixtures("by_child")
async def test_who_reads_no_further_leaves_no_child() -> None:
    async with aclosing(stated_pages(context(5_000), WANTED, set())) as pages:
        async for _ in pages:
            assert len(children()) == 1
            break
    assert children() == set()
    task = asyncio.create_task(stated(context(5_000)))
    while not children():
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert children() == set()


@pytest.mark.usefixtures("by_child")
async def test_without_an_interpreter_to_start_it_is_done_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "")
    assert len(await stated(context(10))) == 20
