"""A broker and its receiver, killed while many publish; at full size by `python -m
tests.crash.nats`.
"""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.nats import Report, compare, run
from tests.nats_kit import server_program


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_both_sides_killed_each_message_has_one_effect() -> None:
    server_program()
    seed = random.randrange(10_000)
    report = await run(4, 200, kills=6, seed=seed)
    print(f"seed {seed}: {report}")
    assert (report.missing, report.doubled, report.disordered) == ([], [], [])
    assert report.exit_code == 0
    assert report.behind_gaps > 0
    assert report.kills.total() == 6


def test_the_comparison_would_notice(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with closing(sqlite3.connect(store)) as raw, raw:
        raw.execute("CREATE TABLE effect (place INTEGER PRIMARY KEY, sender, number)")
        raw.execute("CREATE TABLE instep_inbox (body, number)")
        rows = [(1, 1), (1, 3), (1, 2), (1, 2), (2, 1)]
        raw.executemany("INSERT INTO effect (sender, number) VALUES (?, ?)", rows)
        raw.execute("INSERT INTO instep_inbox VALUES (?, 3)", (json.dumps({"sender": 2}),))
    report = Report(exit_code=0)
    compare(store, {1: [1, 2, 3, 4], 2: [1, 3, 4]}, report)
    assert report.doubled == ["(1, 2): 2"]
    assert report.disordered == ["1"]
    assert report.missing == ["(1, 4)", "(2, 4)"]
    assert not report.good
