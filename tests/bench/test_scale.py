"""The benchmark of many streams runs, and reports what it ran."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.scale import IDLE_CORE_SHARE, STREAM_BYTES, Scale

_ROOT = Path(__file__).parents[2]


def test_it_follows_all_streams_until_they_are_aligned() -> None:
    command = [sys.executable, "-m", "bench.scale", "--providers=2", "--streams=3"]
    done = subprocess.run(
        [*command, "--settle=0.1", "--idle=0.5", "--format=jsonl"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["providers"], result["streams"]) == (2, 6)
    assert result["entities"] > 0
    assert 0 < result["first_aligned_s"] <= result["aligned_s"]
    added = result["aligned_bytes"] - result["empty_bytes"]
    assert result["stream_bytes"] >= added // 6 > 0
    assert result["idle_core_share"] > 0


def test_a_target_is_met_up_to_it() -> None:
    def scale(stream_bytes: float, core_share: float) -> Scale:
        return Scale(
            providers=1,
            streams=4,
            entities=1,
            first_aligned_s=1.0,
            aligned_s=1.0,
            aligning_cpu_s=1.0,
            empty_bytes=1_000,
            aligned_bytes=1_000,
            idle_bytes=1_000 + int(4 * stream_bytes),
            settle_s=1.0,
            settle_cpu_s=1.0,
            idle_s=100.0,
            idle_cpu_s=100 * core_share,
        )

    assert scale(STREAM_BYTES, IDLE_CORE_SHARE).met
    assert not scale(STREAM_BYTES + 1, IDLE_CORE_SHARE).met
    assert not scale(STREAM_BYTES, IDLE_CORE_SHARE + 0.001).met
