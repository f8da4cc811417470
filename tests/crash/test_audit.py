"""An audit under a storm: five thousand entities, or more by `python -m tests.crash.audit`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.audit import LOGS, audited


@pytest.mark.timeout(300)
@pytest.mark.asyncio
@pytest.mark.parametrize("log", LOGS)
async def test_st_2_3_all_corruption_is_found_and_nobody_falsely_accused(
    log: str, tmp_path: Path
) -> None:
    seed = random.randrange(10_000)
    outcome = await audited(
        tmp_path, log=log, entities=5_000, share=0.02, changes_per_s=200, seed=seed
    )
    print(f"seed {seed}: {outcome.first}")
    assert outcome.found == outcome.corrupted
    assert {*outcome.corrupted.values()} == {"missing", "stale", "bogus"}
    assert outcome.first is not None
    assert outcome.first.clean
    assert outcome.first.counts.repaired == len(outcome.corrupted)
    assert outcome.second is not None
    counts = outcome.second.counts
    assert (counts.missing, counts.stale, counts.bogus) == (0, 0, 0)
    assert counts.right > 4_500
    assert outcome.differences == 0
