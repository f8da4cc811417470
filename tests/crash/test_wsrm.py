"""An RM destination, killed while many send; at full size by `python -m tests.crash.wsrm`."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lxml import etree

from tests.crash.messages import LinkFaults
from tests.crash.wsrm import RM, Report, Source, compare, run


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_killed_at_any_moment_no_promise_is_broken() -> None:
    seed = random.randrange(10_000)
    report = await run(4, 160, seed=seed, kill_every_s=0.2)
    print(f"seed {seed}: {report}")
    assert report.broken_promises == []
    assert report.missing == []
    assert report.doubled == []
    assert report.disordered == []
    assert report.exit_code == 0
    assert report.kills > 0
    assert report.cancelled > 0


def source(report: Report, **changes: Any) -> Source:
    made = Source(1, None, LinkFaults(), 0, report)  # type: ignore[arg-type]
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_comparison_would_notice() -> None:
    report = Report(exit_code=0)
    good = {"acknowledged": {1, 2, 4}, "cancelled": {3}, "filled": {4}}
    compare([(1, 1), (1, 2)], [source(report, **good)], report)
    assert report.good
    compare([(1, 3), (1, 2), (1, 2)], [source(report, **good)], report)
    assert report.missing == ["(1, 1)"]
    assert report.broken_promises == ["source 1: 3 had an effect"]
    assert report.doubled == ["(1, 2): 2"]
    assert report.disordered == ["source 1"]
    assert not report.good


@pytest.mark.parametrize(("acknowledged", "cancelled"), [("1-2", "2-2"), ("3-3", ""), ("", "1-1")])
def test_a_broken_promise_would_be_noticed(acknowledged: str, cancelled: str) -> None:
    def block(local: str, pair: str) -> str:
        low, _, high = pair.partition("-")
        part = f'<w:AcknowledgementRange Lower="{low}" Upper="{high}"/>' if pair else ""
        return f"<w:{local}>{part}</w:{local}>"

    report = Report()
    one = source(report, acknowledged={1}, cancelled={3})
    blocks = block("SequenceAcknowledgement", acknowledged)
    blocks += block("SequenceCancelAcknowledgement", cancelled)
    one._read(etree.fromstring(f'<x xmlns:w="{RM["1.1"]}">{blocks}</x>'))
    assert len(report.broken_promises) == 1
