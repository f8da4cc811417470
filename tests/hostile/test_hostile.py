"""A few seconds of the hostile run without its bombs, which take what processors there are: honest
messages once and in order, and every bound kept. The bombs are tried one by one where they hit.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.hostile.__main__ import judge, run
from tests.hostile.attacks import ATTACKS
from tests.hostile.site import LIMITS, site


@pytest.mark.asyncio
async def test_strangers_harm_no_honest_sender_and_no_stream(tmp_path: Path) -> None:
    # How fast it is in a test says nothing: the machine runs other tests beside it.
    limits = msgspec.structs.replace(LIMITS, latency_s=60.0, lag_s=60.0, threads_per_s=1.0)
    with site(tmp_path, limits) as at:
        facts = await run(at, 8.0, senders=5, attacks_per_s=20.0, seed=1, chosen=ATTACKS)
    assert judge(facts, limits) == [], json.dumps(facts, indent=1)
    assert facts["honest_messages"] > 10
    attacked = {answer.partition(" ")[0] for answer in facts["answers"]}
    assert attacked >= {"connections", "did-bombs", "endpoints", "gaps", "nonsense", "threads"}
