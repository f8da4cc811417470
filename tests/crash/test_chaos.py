"""One `instep run` with consumers of every kind, restarted; hundreds of times by `make chaos`."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.crash.chaos import chaos

pytest.importorskip("didcomm_messaging", reason="the extra `didcomm` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_restarted_at_any_moment_nothing_dies_and_nothing_is_lost() -> None:
    seed = random.randrange(10_000)
    report = asyncio.run(chaos(12, seed=seed))
    print(report)
    assert report.faults == []
    assert report.consumers >= 9
    assert report.delivered > 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_lazy_decoder_would_be_caught() -> None:
    report = asyncio.run(chaos(60, seed=random.randrange(10_000), lazy=True))
    print(report)
    assert any("ended with -11" in fault for fault in report.faults)
