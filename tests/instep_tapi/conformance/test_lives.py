"""A life of a seed is the same in each process: a seed that has found a fault finds it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from hashlib import sha256
from instep.conformance import event_line
from tests.instep_tapi.conformance.test_no_false_findings import life
for seed in range(3, 7):
    trace = life(seed).trace
    print(seed, len(trace), sha256(b"".join(map(event_line, trace))).hexdigest())
"""


def lives(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_a_life_depends_on_its_seed_alone() -> None:
    assert lives("1") == lives("2")
