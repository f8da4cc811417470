"""A process with a handler is killed again and again: each change has taken effect once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    "kills", [2, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_no_effect_is_lost_nor_doubled_by_kills(database: str, kind: str, kills: int) -> None:
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE outbox (cursor BIGINT, key TEXT)"))
    chance = random.Random(kills)
    program = [sys.executable, "-m", "tests.instep_sql.handlers.outbox_process_kit", database, kind]
    for _ in range(kills):
        with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.02, 0.2))
            process.kill()
    query = "SELECT cursor, key FROM {} ORDER BY cursor"
    with engine.connect() as connection:
        changes = list(map(tuple, connection.execute(text(query.format("instep_change")))))
        events = list(map(tuple, connection.execute(text(query.format("outbox")))))
        (ordinal,) = connection.execute(text("SELECT ordinal FROM instep_stream")).one()
    engine.dispose()
    assert events == changes
    assert len(changes) == 5 * ordinal > 0
