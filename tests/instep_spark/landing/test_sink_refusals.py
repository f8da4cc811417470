"""What the Delta sink refuses, quarantines and reports; nothing is lost."""

import asyncio
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from instep.errors import ConfigurationError, SinkError, StoreUnavailableError, StoreVersionError
from instep.model.position import Position
from instep.model.records import Unreadable
from instep.model.streams import StreamInfo
from instep_spark import DeltaSink
from instep_spark.landing.writers.delta_rs import as_sink_error
from instep_spark.landing_schema import CHANGES, MEANINGS, TABLES, arrow_schema, ddl
from instep_spark.options import DeltaOptions, DeltaSinkOptions
from tests.instep_spark.sink_kit import Stage, fill, rows, stage, url_of
from tests.instep_sql.store_kit import create_update, stream_info


def test_a_foreign_error_is_one_line_and_whole_in_the_log_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "instep_spark")
    options = DeltaOptions.read({"url": "file:///tmp/lake"}, "here")
    error = as_sink_error(DeltaError("it is torn\n\nBacktrace:\n  0: frame"), options, "w")
    assert error.message == "the lake cannot be used now: it is torn"
    assert "frame" in caplog.text


@pytest.mark.asyncio
async def test_what_cannot_be_read_is_kept_once(tmp_path: Path) -> None:
    """A11, in a lake."""
    url = url_of(tmp_path)
    bad = Unreadable("s1", b"\xff{", "no JSON", "t2")
    async with stage(url, quarantine_max_records=3) as at:
        await at.commit(
            create_update("a", 1), unreadable=[bad, Unreadable("s1", b"x", "odd \ud800")]
        )
        await at.commit(create_update("b\ud800", 2), create_update("c", 3), unreadable=[bad])
        full = await at.commit(
            create_update("d", 4), unreadable=[Unreadable("s1", b"y", "odd", "t4")]
        )
        assert full.gave_way == 1
    async with stage(url, quarantine_max_bytes=100) as at:
        await at.commit(
            create_update("e", 5), unreadable=[Unreadable("s1", b"z" * 90, "odd", "t5")]
        )
        await at.commit(create_update("f", 6), unreadable=[Unreadable("s1", b"z" * 9, "odd", "t5")])
    assert [row["key"] for row in rows(url)[1:]] == ["a", "c", "d", "e", "f"]
    kept = rows(url, "SELECT * FROM quarantine ORDER BY received_at, raw")
    assert [row["token"] for row in kept] == [None, "t2", "t2", "t5"]
    assert b"\xff{" in [row["raw"] for row in kept]


@pytest.mark.asyncio
async def test_the_streams_of_a_consumer_share_the_room_for_what_cannot_be_read(
    tmp_path: Path,
) -> None:
    url = url_of(tmp_path)
    streams = [stream_info(f"s{n}") for n in (1, 2, 3)]

    def bad(stream: StreamInfo, raw: bytes) -> list[Unreadable]:
        return [Unreadable(stream.id, raw, "odd", raw.decode())]

    for stream in streams[:2]:
        async with stage(url, stream=stream, quarantine_total_records=2) as at:
            await at.commit(create_update("a", 1), unreadable=bad(stream, b"x" * 40))
    limits: tuple[dict[str, Any], ...] = (
        {"quarantine_total_records": 2},
        {"quarantine_total_bytes": 100},
    )
    for at_once, limit in enumerate(limits, 1):
        async with stage(url, stream=streams[2], **limit) as at:
            result = await at.commit(
                create_update("a", at_once), unreadable=bad(streams[2], b"y" * 40)
            )
            assert result.gave_way == 1
    # What is there already needs no room.
    async with stage(url, stream=streams[0], quarantine_total_records=2) as at:
        await at.commit(create_update("b", 2), unreadable=bad(streams[0], b"x" * 40))
    assert len(rows(url, "SELECT * FROM quarantine")) == 2


@pytest.mark.asyncio
async def test_another_consumer_is_refused(tmp_path: Path, writer: dict[str, Any]) -> None:
    url = url_of(tmp_path)
    async with stage(url, "east", **writer) as at:
        await at.commit(create_update("a", 1))
    with pytest.raises(SinkError, match="belongs to the consumer 'east'"):
        async with stage(url, "west", **writer):
            pass
    with pytest.raises(SinkError, match="belongs to the consumer 'east'"):
        async with stage(url, "east", shared=True, **writer):
            pass


@pytest.mark.asyncio
async def test_consumers_share_a_lake_that_says_so(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url, "it's {east}", shared=True) as a, stage(url, "w", shared=True) as b:
        await asyncio.gather(a.commit(create_update("a", 1)), b.commit(create_update("b", 1)))
        await asyncio.gather(a.commit(create_update("a", 2)), b.commit(create_update("b", 2)))
    async with stage(url, "it's {east}", shared=True) as a:
        assert a.position.ordinal == 2
    assert Counter(row["consumer"] for row in rows(url)) == {"it's {east}": 3, "w": 3}


@pytest.mark.asyncio
async def test_tables_of_another_shape_are_refused(tmp_path: Path, writer: dict[str, Any]) -> None:
    url = url_of(tmp_path)
    DeltaTable.create(f"{url}/changes", arrow_schema(CHANGES))
    with pytest.raises(SinkError, match="not made by instep"):
        async with stage(url, **writer):
            pass
    for number, (schema, version, error, message) in enumerate(
        [
            (arrow_schema(CHANGES[:-1]), "100", SinkError, "committed_at"),
            (arrow_schema(CHANGES), "101", StoreVersionError, "version 101"),
            (arrow_schema(CHANGES), "1", StoreVersionError, r"before 0\.1\.0.* — make it anew"),
        ]
    ):
        url = url_of(tmp_path / str(number))
        facts = {"instep.schema": version, "instep.consumer": "c"}
        DeltaTable.create(
            f"{url}/changes", schema, configuration=facts, raise_if_key_not_exists=False
        )
        with pytest.raises(error, match=message):
            async with stage(url, **writer):
                pass


@pytest.mark.asyncio
async def test_no_access_and_no_lake(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="not open — call open"):
        await DeltaSink(url_of(tmp_path)).commit(
            Stage.batch(Stage(None, stream_info(), Position()))  # type: ignore[arg-type]
        )
    (tmp_path / "lake").write_text("a file where the folder should be")
    with pytest.raises(SinkError):
        async with stage(url_of(tmp_path)):
            pass


def test_ddl_is_what_arrow_has() -> None:
    assert ddl(CHANGES).count(" COMMENT '") == len(arrow_schema(CHANGES))


@pytest.mark.asyncio
async def test_columns_state_what_they_mean_and_delta_rs_still_answers(
    tmp_path: Path, writer: dict[str, Any]
) -> None:
    url = url_of(tmp_path)
    async with stage(url, **writer) as at:
        await at.commit(create_update("a", 1), create_update("b", 2))
    for name, columns in TABLES.items():
        schema = json.loads(DeltaTable(f"{url}/{name}").schema().to_json())
        told = [field["metadata"].get("comment") for field in schema["fields"]]
        assert [one.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'") for one in told] == [
            column.meaning for column in columns
        ]
        assert DeltaTable(f"{url}/{name}").metadata().description == MEANINGS[name]
    # DataFusion once failed on columns with comments, where a plan names them twice.
    found = rows(
        url,
        "SELECT a.key, count(*) AS n, row_number() OVER (ORDER BY a.key) AS place FROM changes a "
        "JOIN (SELECT stream, max(ordinal) AS last FROM changes GROUP BY stream UNION ALL "
        "SELECT stream, count FROM stream_facts WHERE fact = 'none') b ON a.stream = b.stream "
        "WHERE a.kind = 'CREATE_UPDATE' AND a.ordinal <= b.last GROUP BY a.key",
    )
    assert found == [{"key": "a", "n": 1, "place": 1}, {"key": "b", "n": 1, "place": 2}]


def test_secrets_do_not_show() -> None:
    sink = DeltaSink("s3://bucket/lake", storage_options={"AWS_SECRET_ACCESS_KEY": "hunter22"})
    assert "hunter22" not in repr(sink) + repr(sink.options)
    assert sink.options.redact("no: hunter22") == "no: ***"
    with pytest.raises(ConfigurationError, match="keys belong into storage_options") as caught:
        DeltaSink("s3://key:hunter22@bucket/lake")
    assert "hunter22" not in str(caught.value)


@pytest.mark.asyncio
async def test_removed_rows_are_noticed(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(create_update("a", 1))
        await at.commit(create_update("b", 2))
    table = DeltaTable(f"{url}/changes")
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.delete("ordinal = 3")
    with pytest.raises(SinkError, match="last rows of stream 's1' are not there"):
        async with stage(url):
            pass


@pytest.mark.asyncio
async def test_a_full_disk_is_retriable_and_loses_nothing(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs rights that this process has not")
    try:
        url = url_of(tmp_path)
        async with stage(url) as at:
            await at.commit(create_update("a", 1))
            with pytest.raises(OSError, match="No space"):
                fill(tmp_path / "ballast")
            batch = at.batch(*[create_update(f"k{n}", n) for n in range(2, 200)])
            with pytest.raises(StoreUnavailableError, match="the disk is full — make room"):
                await at.sink.commit(batch)
            (tmp_path / "ballast").unlink()
            assert (await at.sink.position(at.stream)).ordinal == 1
            await at.sink.commit(batch)
        assert [row["ordinal"] for row in rows(url)] == list(range(1, 201))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.asyncio
async def test_closing_ends_what_waits(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with stage(url, commit_interval_s=60) as at:
        await at.commit(create_update("a", 1))
        waiting = asyncio.create_task(at.sink.commit(at.batch(create_update("b", 2))))
        await asyncio.sleep(0.01)
        assert not waiting.done(), "it waits for others"
        await at.sink.close()
        with pytest.raises(SinkError, match="closed meanwhile"):
            await waiting
    assert [row["key"] for row in rows(url)] == ["", "a"]


def test_a_type_checker_knows_each_option() -> None:
    known = set(DeltaSinkOptions.__annotations__)
    assert known == set(DeltaOptions.__struct_fields__) - {"url"}
