"""A store that was made before entities carried their proof opens, with all that it holds (A22)."""

from __future__ import annotations

import pytest
from alembic import command
from alembic.config import Config

from instep_sql import SqlStore
from instep_sql.engine import schema
from instep_sql.engine.registry import dialect_of
from instep_sql.options import SqlOptions
from tests.instep_sql.store_kit import Stage, create_update, stream_info

pytestmark = pytest.mark.asyncio
_POSITION = '{"token":"t1","ordinal":1,"phase":"aligned","attempt":1,"lineage":1}'
_OLD = (
    (
        "INSERT INTO instep_stream (consumer, stream, kind, position, token, appended_at_us, phase,"
        " attempt, ordinal, records, info, deviations, journal, updated_at_us)"
        f" VALUES ('east', 's1', 'stream', '{_POSITION}', 't1', 1, 'aligned', 1, 1, 1, '{{}}',"
        " '{}', 'off', 1)"
    ),
    *(
        'INSERT INTO instep_entity (stream_no, key, class, token, partition, "offset",'
        " appended_at_us, lineage, attempt, proven, uuid, envelope, body)"
        f" VALUES (1, '{key}', 'NODE', 't1', '', 1, 1, 1, 1, {proven}, '', {{empty}}, {{empty}})"
        for key, proven in (("a", 1), ("b", 0))
    ),
    *(
        "INSERT INTO instep_quarantine (stream_no, reason, token, received_at_us, digest, raw)"
        f" VALUES (1, 'odd', {token}, 7, {{digest}}, {{raw}})"
        for token in ("NULL", "NULL")
    ),
)


def make_0100(url: str) -> None:
    dialect = dialect_of(SqlOptions(url=url))
    engine = dialect.writer()
    empty, raw = ("x''", "x'3f'") if url.startswith("sqlite") else ("''::bytea", "'?'::bytea")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "instep_sql:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "0100")
        for statement in _OLD:
            filled = statement.replace("{empty}", empty).replace("{raw}", raw)
            connection.exec_driver_sql(filled.replace("{digest}", "NULL"))
    engine.dispose()


async def test_a_store_made_at_0100_opens(database: str) -> None:
    make_0100(database)
    async with SqlStore(database) as store:
        await store.open("east")
        at = Stage(store, await store.position(stream_info()))
        assert (at.position.ordinal, at.position.holds) == (1, ())
        found = await at.entities()
        assert [(one.key, one.proven, one.unproven) for one in found.values()] == [
            ("a", True, ""),
            ("b", False, "no-resource"),
        ]
        [kept] = [one async for one in store.reader.quarantine()]
        assert (kept.raw, kept.times, kept.last_at_us) == (b"?", 2, 7)
        await at.commit(create_update("b", 2))
        assert (await at.entities())["b"].proven
    assert schema.HEAD > "0100"
