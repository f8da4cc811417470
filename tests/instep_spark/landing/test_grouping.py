"""When a commit begins, what it takes along, and that a conflict is run again as a whole."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from instep.errors import StoreUnavailableError
from instep_spark import DeltaSink
from instep_spark.landing.grouping import WaitingBatch, group_size, wait_s
from instep_spark.landing.writers.base import Conflict, Transaction
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions
from tests.instep_spark.sink_kit import Stage, rows, stage, url_of
from tests.instep_sql.store_kit import create_update, stream_info

OPTIONS = DeltaOptions(
    url="file:///lake", commit_interval_s=1.0, commit_records=100, group_records=150
)


def test_small_batches_wait_and_large_ones_do_not() -> None:
    few, many = WaitingBatch("a", 99), WaitingBatch("b", 1)
    assert wait_s(OPTIONS, [few], 0.25) == 0.75
    assert wait_s(OPTIONS, [few], 1.0) == 0.0
    assert wait_s(OPTIONS, [few, many], 0.25) == 0.0, "together they are enough"
    assert wait_s(OPTIONS, [few, WaitingBatch("c", 0)], 0.25) == 0.0, "an alignment moves on"


def test_a_commit_takes_one_batch_of_each_stream_up_to_a_bound() -> None:
    a, b, huge = WaitingBatch("a", 60), WaitingBatch("b", 60), WaitingBatch("c", 1_000)
    assert group_size(OPTIONS, [a, b], groups=True) == 2
    assert group_size(OPTIONS, [a, b], groups=False) == 1
    assert group_size(OPTIONS, [a, b, a], groups=True) == 2
    assert group_size(OPTIONS, [a, b, WaitingBatch("d", 60)], groups=True) == 2
    assert group_size(OPTIONS, [huge, a], groups=True) == 1


class Contested(DeltaRsWriter):
    """A writer where others commit first, a few times; or where our own commit succeeds and its
    answer is lost.
    """

    refusals = 0
    lost_answers = 0

    def append(self, table: str, rows: pa.Table, transactions: Sequence[Transaction] = ()) -> None:
        if transactions and self.refusals:
            self.refusals -= 1
            raise Conflict("somebody was faster")
        super().append(table, rows, transactions)
        if transactions and self.lost_answers:
            self.lost_answers -= 1
            raise Conflict("the answer was lost")


async def contested(sink: DeltaSink) -> tuple[Contested, Stage]:
    writer = Contested(sink.options)
    sink._writer = writer
    await sink.open("c")
    return writer, Stage(sink, stream_info(), await sink.position(stream_info()))


@pytest.mark.asyncio
async def test_a_conflict_is_run_again_as_a_whole(tmp_path: Path) -> None:
    url = url_of(tmp_path)
    async with DeltaSink(url, commit_interval_s=0) as sink:
        writer, at = await contested(sink)
        writer.refusals = 3
        await at.commit(create_update("a", 1), create_update("b", 2))
        writer.lost_answers = 1
        await at.commit(create_update("c", 3))
        writer.refusals = 100
        batch = at.batch(create_update("d", 4))
        with pytest.raises(StoreUnavailableError, match="6 commits in a row were refused"):
            await sink.commit(batch)
        writer.refusals = 0
        assert await sink.position(at.stream) == at.position
        await sink.commit(batch)
    assert [row["key"] for row in rows(url)] == ["", "a", "b", "c", "d"]
    async with stage(url) as again:
        assert again.position == batch.position
