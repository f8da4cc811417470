"""The benchmarks of the lake run on the tables of today."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.lake.__main__ import chain, layouts

pytestmark = pytest.mark.spark


def test_the_chain_is_measured_beside_a_bare_merge(spark: SparkSession, tmp_path: Path) -> None:
    measured = chain(spark, tmp_path, 60, 1)
    assert [(one.entities, one.load) for one in measured] == [(60, "new"), (60, "update")]
    assert all(one.ratio > 0 for one in measured)


@pytest.mark.long
def test_each_layout_is_measured(spark: SparkSession, tmp_path: Path) -> None:
    names = ["plain", "deletion vectors", "16 buckets of ids"]
    found = layouts(spark, tmp_path, [100], 10, names)
    assert {name: len(seconds) for name, seconds in found.items()} == dict.fromkeys(names, 1)
