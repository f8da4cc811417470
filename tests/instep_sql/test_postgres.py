"""What only PostgreSQL can do to a store: go away, refuse to serialise, deadlock, time out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import trustme
from msgspec.structs import replace

from instep.errors import FencedError, SinkError, StoreUnavailableError
from instep.position import Position
from instep.records import SweepStep
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep_sql.made import BY_CHANGE, Stage, ended, info, said, stage
from tests.postgres import Server, serving

pytestmark = pytest.mark.asyncio

_FAIL_SOMETIMES = """
    CREATE SEQUENCE turn;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('turn') <= {times} THEN
            RAISE EXCEPTION 'not now' USING ERRCODE = '{state}';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER fail BEFORE INSERT ON instep_entity EXECUTE FUNCTION fail();
"""


@pytest.mark.parametrize("size", [1, 999, 1_000, 3_000])
async def test_rule_3_holds_whatever_the_size_of_the_batch(
    postgres_database: str, size: int
) -> None:
    async with stage(postgres_database) as at:
        await at.commit(*[said(f"k{n}", n % 2 * 100) for n in range(size)])
        at.attempt = 2
        result = await at.commit(*[said(f"k{n}", 50) for n in range(size)])
        older = (size + 1) // 2
        assert result.written == older
        entities = await at.entities()
        assert list(entities) == [f"k{n}" for n in range(size)]
        assert sum(entity.attempt == 2 for entity in entities.values()) == older
        assert (await at.commit(*[ended(f"k{n}", 60) for n in range(size)])).deleted == older


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_transaction_that_others_made_fail_is_run_again(
    postgres: Server, postgres_database: str, state: str
) -> None:
    async with stage(postgres_database, journal="changes") as at:
        postgres.execute(_FAIL_SOMETIMES.format(times=3, state=state), postgres_database)
        assert (await at.commit(said("a", 1))).written == 1
        assert await at.told() == [("a", "created")]


async def test_one_that_fails_for_ever_is_given_up_and_can_be_tried_again(
    postgres: Server, postgres_database: str
) -> None:
    async with stage(postgres_database) as at:
        await at.commit(said("a", 1))
        postgres.execute(_FAIL_SOMETIMES.format(times=1_000, state="40001"), postgres_database)
        with pytest.raises(StoreUnavailableError, match="met others again and again") as caught:
            await at.commit(said("b", 2))
        assert caught.value.data == {"sqlstate": "40001"}
        postgres.execute("DROP TRIGGER fail ON instep_entity", postgres_database)
        await at.commit(said("b", 2))
        assert sorted(await at.entities()) == ["a", "b"]


async def test_a_real_deadlock_costs_one_more_run(postgres_database: str) -> None:
    async with stage(postgres_database) as at:
        await at.commit(said("a", 1))
        with psycopg.connect(postgres_database) as other:
            # The store is the one that looks for deadlocks first, and so the one that gives way.
            other.execute("SET deadlock_timeout = '60s'")
            other.execute("UPDATE instep_entity SET attempt = attempt WHERE key = 'a'")
            committing = asyncio.create_task(at.commit(said("a", 2)))
            await _until_waiting(postgres_database)
            await asyncio.to_thread(other.execute, "UPDATE instep_stream SET ordinal = ordinal")
            other.commit()
        assert (await committing).written == 1
        assert await at.bodies() == {"a": b'{"at":2}'}


async def _until_waiting(url: str) -> None:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(20):
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute(query).fetchone() == (0,):
                await asyncio.sleep(0.01)


async def test_a_statement_that_takes_too_long_is_ended(postgres_database: str) -> None:
    async with stage(postgres_database, statement_timeout_s=0.2) as at:
        await at.commit(said("a", 1))
        with psycopg.connect(postgres_database) as other:
            other.execute("SELECT 1 FROM instep_stream FOR UPDATE")
            with pytest.raises(StoreUnavailableError, match="raise statement_timeout_s"):
                await at.commit(said("a", 2))
        await at.commit(said("a", 2))


async def test_readers_and_the_census_do_not_hold_up_commits(postgres_database: str) -> None:
    async with stage(postgres_database, statement_timeout_s=5) as at:
        await at.commit(said("a", 1))
        entered, go_on = threading.Event(), threading.Event()

        def slow(connection: object) -> None:
            connection.exec_driver_sql("SELECT count(*) FROM instep_entity")  # type: ignore[attr-defined]
            entered.set()
            go_on.wait(20)

        reading = asyncio.create_task(at.store.reader.database.run(slow))
        await asyncio.to_thread(entered.wait, 20)
        at.attempt = 2
        await at.commit(said("a", 2), ended("a", 3), sweep=SweepStep(2))
        go_on.set()
        await reading
        assert await at.entities() == {}


async def test_a_reader_cannot_write(postgres_database: str) -> None:
    async with stage(postgres_database) as at:
        with pytest.raises(SinkError, match="read-only transaction"):
            await at.store.reader.database.run(
                lambda connection: connection.exec_driver_sql("DELETE FROM instep_entity")
            )


@pytest.mark.parametrize("size", [3, 2_000])
@pytest.mark.parametrize("bad", ["key", "token", "entity_class", "uuid", "partition"])
async def test_rule_11_a_record_with_a_nul_is_quarantined_and_the_stream_goes_on(
    postgres_database: str, size: int, bad: str
) -> None:
    async with stage(postgres_database, journal="changes") as at:
        records = [said(f"k{n}", n) for n in range(size)]
        records[1] = replace(records[1], **{bad: "a\0b"})
        records[-1] = replace(records[-1], token="t\0")
        await at.commit(*records)
        assert len(await at.entities()) == size - 2
        kept = [one async for one in at.store.reader.quarantine()]
        assert [one.reason for one in kept] == ["a NUL character in a key, token or name"] * 2
        assert (await at.store.position(info())).token == "t\0"


async def test_rule_11_a_change_with_a_nul_is_quarantined(postgres_database: str) -> None:
    async with stage(postgres_database, BY_CHANGE) as at:
        body = b'{"uuid":"a\\u0000"}'
        await at.commit(said("a", 1, whole=False), said("b", 2, body, whole=False))
        assert list(await at.entities()) == ["a"]
        assert len([one async for one in at.store.reader.quarantine()]) == 1


# -- connections that are lost -----------------------------------------------------------------


async def test_a_connection_that_was_ended_is_made_again(
    postgres: Server, postgres_database: str
) -> None:
    async with stage(postgres_database) as at:
        await at.commit(said("a", 1))
        await at.entities()
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'instep'"
        )
        await at.commit(said("b", 2))
        assert sorted(await at.entities()) == ["a", "b"]


class Cutter:
    """Forwards one port to another, and cuts the connection at a COMMIT when told to."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.cut: Callable[[], str] = lambda: "no"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._to) as server, contextlib.suppress(OSError):
            answers = threading.Thread(target=_pump, args=(server, client), daemon=True)
            answers.start()
            while data := client.recv(1 << 16):
                cut = self.cut() if b"COMMIT\0" in data else "no"
                if cut == "after":
                    # The server commits; its answer does not arrive.
                    client.shutdown(socket.SHUT_WR)
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    answers.join(20)
                    return
                if cut == "before":
                    server.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)

    def close(self) -> None:
        self._server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    while True:
        try:
            data = source.recv(1 << 16)
        except OSError:
            return
        if not data:
            return
        with contextlib.suppress(OSError):
            target.sendall(data)


@contextlib.contextmanager
def cutting(server: Server) -> Iterator[Cutter]:
    cutter = Cutter(server.port)
    try:
        yield cutter
    finally:
        cutter.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_whose_answer_was_lost_is_done_once(
    postgres: Server, postgres_database: str, when: str
) -> None:
    with cutting(postgres) as cutter:
        url = postgres_database.replace(str(postgres.port), str(cutter.port))
        async with stage(url, journal="changes") as at:
            await at.commit(said("a", 1), said("old", 1))
            answers = iter([when])
            cutter.cut = lambda: next(answers, "no")
            result = await at.commit(said("a", 2), said("b", 2), ended("old", 2))
            assert (result.written, result.deleted) == (2, 1)
            await at.commit(said("a", 3))
            told = [("a", "created"), ("old", "created")]
            told += [("a", "updated"), ("b", "created"), ("old", "deleted"), ("a", "updated")]
            assert await at.told() == told
            assert (await at.store.position(info())).ordinal == 3


async def test_a_commit_lost_again_and_again_leaves_the_question_to_the_position(
    postgres: Server, postgres_database: str
) -> None:
    with cutting(postgres) as cutter:
        url = postgres_database.replace(str(postgres.port), str(cutter.port))
        async with stage(url) as at:
            cutter.cut = lambda: "after"
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await at.commit(said("a", 1))
            cutter.cut = lambda: "no"
            assert (await at.store.position(info())).ordinal == 1
            assert list(await at.entities()) == ["a"]


async def test_a_commit_lost_while_another_process_moved_on_is_fenced(
    postgres: Server, postgres_database: str
) -> None:
    with cutting(postgres) as cutter:
        url = postgres_database.replace(str(postgres.port), str(cutter.port))
        async with stage(url) as at:
            await at.commit(said("a", 1))
            answers = iter(["before"])

            def other_first() -> str:
                answer = next(answers, "no")
                if answer != "no":
                    move = "UPDATE instep_stream SET ordinal = ordinal + 1, position = '{}'"
                    postgres.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'instep' AND state LIKE 'idle in%'"
                    )
                    postgres.execute(move, postgres_database)
                return answer

            cutter.cut = other_first
            with pytest.raises(FencedError):
                await at.commit(said("a", 2))
            assert await at.bodies() == {"a": b'{"at":1}'}


@pytest.mark.timeout(240)
async def test_a_server_killed_under_load_loses_nothing_and_is_found_again() -> None:
    with serving() as server:
        url = server.create()
        async with stage(url, journal="changes") as at:
            failures = 0

            async def load(until: int) -> None:
                nonlocal failures
                while at.position.ordinal < until:
                    turn = at.position.ordinal + 1
                    try:
                        await at.commit(*[said(f"k{n}", turn, b"x" * 500) for n in range(1_000)])
                    except StoreUnavailableError:
                        failures += 1
                        await asyncio.sleep(0.02)
                        with contextlib.suppress(StoreUnavailableError):
                            at.position = await at.store.position(info())

            for killing in range(3):
                loading = asyncio.create_task(load(at.position.ordinal + 15))
                await asyncio.sleep(0.1 + 0.05 * killing)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await asyncio.wait_for(loading, 60)
                entities = (await at.entities()).values()
                assert {entity.token for entity in entities} == {f"t{at.position.ordinal}"}
                assert len(entities) == 1_000
            assert failures > 0
            changes = await at.changes()
            assert [change.cursor for change in changes] == list(range(1, len(changes) + 1))
            # The bodies are alike: only the first commit changed anything.
            assert len(changes) == 1_000


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with SqlStore(f"postgresql://user:geheim@127.0.0.1:{port}/x") as store:
        with pytest.raises(StoreUnavailableError, match=r"be reached: .*refused") as caught:
            await store.open("east")
    assert caught.value.where == f"postgresql://user@127.0.0.1:{port}/x"
    assert "geheim" not in str(caught.value)


# -- the journal of several writers --------------------------------------------------------------


async def test_cursors_are_in_the_order_of_commits_without_holes(postgres_database: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stages: list[Stage] = []
        for consumer in ("east", "west", "north"):
            store = await stack.enter_async_context(SqlStore(postgres_database, journal="changes"))
            await store.open(consumer)
            stages.append(Stage(store, await store.position(info())))
        seen: list[int] = []

        async def follow() -> None:
            while len(seen) < 3 * 40 * 5:
                after = seen[-1] if seen else 0
                seen.extend([change.cursor async for change in stages[0].store.changes(after)])
                await asyncio.sleep(0)

        async def write(at: Stage) -> None:
            for turn in range(40):
                if turn % 10 == 5:
                    # Rolled back: takes no cursor with it.
                    wrong = at.batch(
                        said("x", turn), expects_ordinal=99, position=Position(ordinal=100)
                    )
                    with pytest.raises(FencedError):
                        await at.store.commit(wrong)
                await at.commit(*[said(f"k{turn}-{n}", turn) for n in range(5)])

        following = asyncio.create_task(follow())
        await asyncio.gather(*map(write, stages))
        await asyncio.wait_for(following, 30)
        assert seen == list(range(1, 601))


async def test_a_commit_rolled_back_after_its_changes_leaves_no_hole(
    postgres_database: str,
) -> None:
    async with stage(postgres_database, journal="changes") as at:
        await at.commit(said("a", 1))
        with pytest.raises(SinkError, match="the database refused"):
            await at.commit(said("b", 2), said("c", 3, offset=1 << 63))
        await at.commit(said("d", 4))
        assert [change.cursor for change in await at.changes()] == [1, 2]


# -- where the tables are ------------------------------------------------------------------------


async def test_stores_in_schemas_of_one_database_do_not_meet(postgres_database: str) -> None:
    async with (
        stage(postgres_database) as one,
        stage(postgres_database, schema="Other") as two,
    ):
        await one.commit(said("a", 1))
        await two.commit(said("b", 1))
        assert (list(await one.entities()), list(await two.entities())) == (["a"], ["b"])
        reader = sink.reader(f"{postgres_database}?schema=Other")
        assert [entity.key async for entity in reader.entities()] == ["b"]
        await reader.close()
    reader = sink.reader(f"{postgres_database}?schema=nowhere")
    with pytest.raises(SinkError, match="holds no store of instep"):
        await reader.streams()
    await reader.close()


async def test_a_user_without_the_right_to_create_is_told(
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
    with serving(certificate=certificate) as server:
        place = server.create().replace("127.0.0.1", "localhost")
        url = f"{place}?sslmode=verify-full&sslrootcert={tmp_path}"
        async with stage(f"{url}/ca.pem") as at:
            await at.commit(said("a", 1))
            encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert await at.store._database.run(
                lambda connection: connection.exec_driver_sql(encrypted).scalar_one()
            )
        for wrong in (f"{url}/other.pem", f"{url}/none.pem"):
            async with SqlStore(wrong) as store:
                with pytest.raises(SinkError, match="give the authority with sslrootcert"):
                    await store.open("east")
