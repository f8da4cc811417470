"""A lake read by the command line: status, entities, quarantine, a held sweep."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from instep.cli.app import app
from instep.config.plugins import open_reader, sink_plugin
from instep.errors import ConfigurationError, JournalOffError, SinkError
from instep.model.batches import SweepStep
from instep.model.holds import Hold, UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import Record, RecordChunk, Unreadable
from instep.model.streams import Retirement
from instep_spark import DeltaSink
from instep_spark.reading.reader import DeltaReader
from tests.instep_spark.sink_kit import of_all, rows, stage, url_of
from tests.instep_sql.store_kit import create_update, end_record, stream_info


def run(*arguments: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, [*arguments, "--format", "jsonl"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


async def fill(url: str) -> None:
    async with stage(url, stream=stream_info(mode="log")) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 30)], deviations={"odd": 2})
        await at.commit(
            end_record("k1", 31),
            create_update("k2", 32),
            unreadable=[Unreadable("s1", b"?", "odd", "t")],
        )
        at.attempt = 2
        await at.commit(*[create_update(f"k{n}", n) for n in range(3, 20)], create_update("k2", 32))
        await at.commit(sweep=SweepStep(2))


def test_a_lake_is_a_store_to_look_at(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    asyncio.run(fill(url))
    status = run("status", "--store", url)[0]
    assert (status["consumer"], status["stream"], status["attempt"]) == ("c", "s1", 2)
    assert (status["entities"], status["quarantined"]) == (18, 1)
    assert status["deviations"] == {"odd": 2}
    entities = run("entities", "--store", url)
    assert {one["key"] for one in entities} == {f"k{n}" for n in range(2, 20)}
    assert entities[-1]["body"] == {"at": 32}
    assert run("quarantine", "list", "--store", url)[0]["reason"] == "odd"


def test_a20_nothing_of_a_lake_stays_aligned_that_is_not_offered(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    aligned = Position(token="t1", ordinal=1, attempt=1, lineage=1, phase=Phase.ALIGNED, records=1)

    async def follow(*, offered: bool) -> list[int]:
        async with stage(url) as at:
            if not at.position.ordinal:
                await at.commit(create_update("a", 1), position=aligned)
            if not offered:
                await at.sink.mark_offered("s1", offered=False)
                await at.sink.mark_offered("s1", offered=False)
                await at.sink.mark_offered("never seen", offered=False)
            return [one.not_offered_since_us for one in await at.sink.known_streams()]

    def shown() -> tuple[object, object, object]:
        [status], [entity] = run("status", "--store", url), run("entities", "--store", url)
        return status["phase"], entity.get("proven", True), entity.get("unproven_reason")

    assert asyncio.run(follow(offered=True)) == [0]
    assert shown() == ("aligned", True, None)
    assert asyncio.run(follow(offered=False)) != [0]
    assert shown() == ("not-offered", False, "not-offered")
    [listed] = run("streams", "list", "--store", url)
    assert listed["not_offered_at"]
    facts = rows(url, "SELECT fact FROM stream_facts")
    assert asyncio.run(follow(offered=True)) == [0]
    assert shown() == ("aligned", True, None)
    assert len(facts) == 2, "it is noted once"


def test_a22_each_entity_of_a_lake_carries_its_proof(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    held = Hold(UnprovenReason.UNREADABLE_RECORD, partition="0", digest="ab")

    async def attempt(number: int, *records: Record, **step: Any) -> None:
        async with stage(url, stream=stream_info(mode="log")) as at:
            at.attempt = number
            await at.commit(*records)
            await at.commit(sweep=SweepStep(number, **step))

    def shown() -> dict[object, tuple[object, object]]:
        return {
            one["key"]: (one["proven_by"], one.get("unproven_reason"))
            for one in run("entities", "--store", url)
        }

    asyncio.run(attempt(1, create_update("a", 1), create_update("b", 2), create_update("c", 3)))
    assert shown() == dict.fromkeys("abc", ("attempt", None))
    # What could not be read may be about each of them: none is swept, and all say why.
    asyncio.run(attempt(2, create_update("a", 1), holds=(held,)))
    doubt = ("record", "unreadable-record ab")
    assert shown() == {"a": ("attempt", None), "b": doubt, "c": doubt}
    unproven = run("entities", "--store", url, "--unproven")
    assert {one["key"] for one in unproven} == {"b", "c"}
    [status] = run("status", "--store", url)
    assert (status["entities"], status["unproven"]) == (3, 2)
    assert [one["digest"] for one in status["unproven_because"]] == ["ab"]  # type: ignore[attr-defined]
    asyncio.run(attempt(3, create_update("a", 1), create_update("b", 2)))
    assert shown() == dict.fromkeys("ab", ("attempt", None))
    # A class that no request shows, and one that was read in part.
    element = Hold(UnprovenReason.UNREADABLE_ELEMENT, "NODE", digest="cd")
    asyncio.run(attempt(4, create_update("a", 1), readable=frozenset({"NODE"}), holds=(element,)))
    assert shown() == {"a": ("baseline", None), "b": ("record", "unreadable-element cd")}
    asyncio.run(attempt(5, create_update("a", 1), readable=frozenset({"LINK"})))
    assert shown() == {"a": ("baseline", None), "b": ("record", "no-resource")}
    [status] = run("status", "--store", url)
    assert [(one["reason"], one["class"]) for one in status["unproven_because"]] == [  # type: ignore[attr-defined]
        ("no-resource", "NODE")
    ]


def test_a20_a_stream_of_a_lake_is_retired_by_the_command(tmp_path: Path) -> None:
    url = url_of(tmp_path)

    async def follow(*keys: str, offered: bool = True) -> None:
        async with stage(url) as at:
            if keys:
                at.attempt += 1
                await at.commit(*[create_update(key, n) for n, key in enumerate(keys, 1)])
            await at.sink.mark_offered("s1", offered=offered)

    retire = ("streams", "retire", "--store", url, "--stream", "s1")
    asyncio.run(follow("a", "b"))
    assert CliRunner().invoke(app, retire).exit_code == 1, "it is offered"
    asyncio.run(follow(offered=False))
    assert run(*retire, "--dry-run")[0]["would_remove"] == 2
    assert len(run("entities", "--store", url)) == 2
    assert run(*retire)[0]["removed"] == 2
    assert run("streams", "list", "--store", url) == run("entities", "--store", url) == []
    kinds = [row["kind"] for row in rows(url)]
    assert kinds == ["ATTEMPT", "CREATE_UPDATE", "CREATE_UPDATE", "ATTEMPT", "SWEEP"]
    # It is offered again, and begins anew.
    asyncio.run(follow("b"))
    assert [one["key"] for one in run("entities", "--store", url)] == ["b"]
    assert run("streams", "list", "--store", url)[0]["phase"] == "unaligned"


@pytest.mark.asyncio
async def test_a20_a_stream_of_a_lake_goes_by_itself_with_a_proof_alone(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
        with pytest.raises(SinkError, match="the provider offers the stream"):
            await at.sink.retire("s1")
        with pytest.raises(SinkError, match="no such stream"):
            await at.sink.retire("never seen")
    async with stage(url, stream=stream_info("other")) as at:
        await at.commit(replace(create_update("a", 1), stream="other"))
        await at.sink.mark_offered("s1", offered=False)
        assert await at.sink.retire("s1", proven_by=["other"]) == Retirement(0, 1)
        await at.commit(replace(create_update("b", 2), stream="other"))
        # What is unproven elsewhere proves nothing.
        at.attempt = 2
        held = (Hold(UnprovenReason.UNREADABLE_RECORD, digest="ab"),)
        await at.commit(replace(create_update("a", 1), stream="other"))
        await at.commit(sweep=SweepStep(2, holds=held))
        assert await at.sink.retire("s1", proven_by=["other"]) == Retirement(0, 1)
        await at.commit(replace(create_update("b", 2), stream="other"))
        assert await at.sink.retire("s1", proven_by=["other"]) == Retirement(2)
        assert [one.id for one in await at.sink.known_streams()] == ["other"]


@pytest.mark.asyncio
async def test_a_held_sweep_is_released_from_another_process(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 10)])
        reader = sink_plugin("delta").reader(url)
        assert isinstance(reader, DeltaReader)
        assert of_all(await reader.estimate_sweep("c", "s1", 2)) == (9, 9)
        assert not await at.sink.is_sweep_released("s1", 2)
        await reader.release_sweep("c", "s1", 2)
        assert await at.sink.is_sweep_released("s1", 2)
        assert not await at.sink.is_sweep_released("s1", 3)
        with pytest.raises(JournalOffError, match="in its table"):
            await anext(reader.changes())
        with pytest.raises(SinkError, match="cannot be replayed"):
            await reader.replay(1, RecordChunk([]))
        with pytest.raises(SinkError, match="cannot be dropped"):
            await reader.drop()
        await reader.close()


@pytest.mark.asyncio
async def test_a_lake_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="there is no table"):
        await open_reader(url_of(tmp_path)).streams()


def test_the_plug_in_checks_and_builds() -> None:
    plugin = sink_plugin("delta")
    assert isinstance(plugin.build({"kind": "delta", "url": "file:///x/lake"}, "w"), DeltaSink)
    assert plugin.reads("s3://bucket/lake")
    assert not plugin.reads("sqlite:///x")
    for options, message in (
        ({}, "'url' is missing"),
        ({"url": "lake"}, "begins with none of file:, s3:"),
        ({"url": "file://lake"}, "three slashes"),
        ({"url": "file:///lake", "writer": "java"}, "'writer' is not usable"),
        ({"url": "file:///lake", "ur": 1}, "unknown key 'ur'"),
        (
            {"url": "file:///lake", "database": "net"},
            "the key 'database' needs Spark as the writer",
        ),
        (
            {"url": "file:///lake", "writer": "spark", "database": "a-b"},
            "not the name of a database",
        ),
        ({"url": "file:///lake", "managed": True}, "the key 'managed' needs a database"),
        (
            {"url": "file:///it's", "writer": "spark", "database": "net"},
            "a character that SQL may read otherwise",
        ),
        ({"url": "file:///lake", "spark": {"master": "local", "remote": "sc://x"}}, "both given"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            plugin.check(options, "instep.toml: consumers[0].sink")
