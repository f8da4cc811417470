"""A WS-Reliability receiver, killed while many send."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lxml import etree

from tests.crash.messages import LinkFaults
from tests.crash.soap_source_kit import Report
from tests.crash.wsr import WSR, Source, compare, run


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_killed_at_any_moment_everything_has_one_effect() -> None:
    seed = random.randrange(10_000)
    report = await run(4, 119, seed=seed, kill_every_s=0.2)
    print(f"seed {seed}: {report}")
    assert report.broken_promises == []
    assert report.missing == []
    assert report.doubled == []
    assert report.disordered == []
    assert report.exit_code == 0
    assert report.kills > 0


def source(report: Report, **changes: Any) -> Source:
    made = Source(1, None, LinkFaults(), 0, report)  # type: ignore[arg-type]
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_comparison_would_notice() -> None:
    report = Report(exit_code=0)
    good = {"acknowledged": {0, 1}}
    compare([(1, 0), (1, 1)], [source(report, **good)], report)
    assert report.good
    compare([(1, 2), (1, 1), (1, 1)], [source(report, **good, faulted={2: "x"})], report)
    assert report.missing == ["(1, 0)"]
    assert report.broken_promises == ["source 1: 2 has x"]
    assert report.doubled == ["(1, 1): 2"]
    assert report.disordered == ["source 1"]
    assert not report.good


def test_replies_are_read_by_range() -> None:
    one = source(Report())
    ranges = (
        '<w:ReplyRange from="0" to="2"/><w:ReplyRange from="2" to="3" fault="w:GroupAborted"/>'
        '<w:ReplyRange from="4" to="4" fault="w:MessageProcessingFailure"/>'
    )
    one.read(etree.fromstring(f'<x xmlns:w="{WSR}">{ranges}</x>'))
    assert one.acknowledged == {0, 1}
    assert one.faulted == {2: "GroupAborted", 3: "GroupAborted"}
