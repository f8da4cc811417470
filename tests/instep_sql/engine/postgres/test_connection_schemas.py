"""Where a PostgreSQL store is: schemas, rights, URLs that are wrong, TLS."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psycopg
import pytest
import trustme

from instep.errors import SinkError
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep_sql.store_kit import create_update, stage
from tests.postgres_kit import Missing, Server, serving

pytestmark = pytest.mark.asyncio


async def test_stores_in_schemas_of_one_database_do_not_meet(postgres_database: str) -> None:
    async with (
        stage(postgres_database) as one,
        stage(postgres_database, schema="Other") as two,
    ):
        await one.commit(create_update("a", 1))
        await two.commit(create_update("b", 1))
        assert (list(await one.entities()), list(await two.entities())) == (["a"], ["b"])
        reader = sink.reader(f"{postgres_database}?schema=Other")
        assert [entity.key async for entity in reader.entities()] == ["b"]
        await reader.close()
    reader = sink.reader(f"{postgres_database}?schema=nowhere")
    with pytest.raises(SinkError, match="holds no store of instep"):
        await reader.streams()
    await reader.close()


async def test_a_user_without_the_right_to_create_gets_an_error(
    postgres: Server, postgres_database: str
) -> None:
    with contextlib.suppress(psycopg.errors.DuplicateObject):
        postgres.execute("CREATE ROLE guest LOGIN")
    async with SqlStore(postgres_database.replace("postgres@", "guest@")) as store:
        with pytest.raises(SinkError, match=r"not allowed to do that.* — grant CREATE"):
            await store.open("east")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/db", "/none", "there is no such database or user"),
        ("postgres@", "nobody:geheim@", "there is no such database or user"),
        ("", "?sslmode=require", "the server offers no TLS.* — .*sslmode=disable"),
    ],
)
async def test_what_a_url_can_have_wrong(
    postgres_database: str, old: str, new: str, message: str
) -> None:
    url = postgres_database.replace(old, new) if old else postgres_database + new
    reader = sink.reader(url)
    with pytest.raises(SinkError, match=message) as caught:
        await reader.streams()
    await reader.close()
    assert not caught.value.retriable
    assert "geheim" not in str(caught.value)


async def test_tls_is_verified_with_the_authority_that_is_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving(certificate=certificate))
        except Missing as missing:
            pytest.skip(str(missing))
        place = server.create().replace("127.0.0.1", "localhost")
        url = f"{place}?sslmode=verify-full&sslrootcert={tmp_path}"
        async with stage(f"{url}/ca.pem") as at:
            await at.commit(create_update("a", 1))
            encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert await at.store._database.run(
                lambda connection: connection.exec_driver_sql(encrypted).scalar_one()
            )
        for wrong in (f"{url}/other.pem", f"{url}/none.pem"):
            async with SqlStore(wrong) as store:
                with pytest.raises(SinkError, match="give the authority with sslrootcert"):
                    await store.open("east")
