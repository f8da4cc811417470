"""A receiver, killed while many send; at full size by `python -m tests.crash.messages`."""

from __future__ import annotations

import random

import pytest

from tests.crash.messages import Report, compare, run


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_killed_at_any_moment_each_message_has_one_effect_in_order() -> None:
    seed = random.randrange(10_000)
    report = await run(10, 120, seed=seed, kill_every_s=0.2)
    print(f"seed {seed}: {report}")
    assert report.missing == []
    assert report.doubled == []
    assert report.disordered == []
    assert report.exit_code == 0
    assert report.kills > 0


def test_the_comparison_would_notice() -> None:
    report = Report(exit_code=0)
    compare([(0, 1), (0, 2), (1, 1), (1, 2)], 2, 2, report)
    assert report.good
    compare([(0, 2), (0, 1), (1, 1), (1, 1)], 2, 2, report)
    assert report.disordered == ["sender 0"]
    assert report.doubled == ["(1, 1): 2"]
    assert report.missing == ["(1, 2)"]
    assert not report.good
