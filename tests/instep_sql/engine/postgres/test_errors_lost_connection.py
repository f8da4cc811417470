"""Connections to PostgreSQL that are lost, and servers that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from instep.errors import FencedError, StoreUnavailableError
from instep.ports.message_store import MessageGroup, SequenceChange
from instep.sequencing.state import SequencerState
from instep_sql import SqlStore
from tests.instep.runtime.messages.intake_kit import SCOPE, message
from tests.instep_sql.store_kit import create_update, end_record, stage, stream_info
from tests.postgres_kit import Server, serving

pytestmark = pytest.mark.asyncio


async def test_a_connection_that_was_ended_is_made_again(
    postgres: Server, postgres_database: str
) -> None:
    async with stage(postgres_database) as at:
        await at.commit(create_update("a", 1))
        await at.entities()
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'instep'"
        )
        await at.commit(create_update("b", 2))
        assert sorted(await at.entities()) == ["a", "b"]


class Cutter:
    """Forwards one port to another, and cuts the connection at a COMMIT on request."""

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
            await at.commit(create_update("a", 1), create_update("old", 1))
            answers = iter([when])
            cutter.cut = lambda: next(answers, "no")
            result = await at.commit(
                create_update("a", 2), create_update("b", 2), end_record("old", 2)
            )
            assert (result.written, result.deleted) == (2, 1)
            await at.commit(create_update("a", 3))
            expected = [("a", "created"), ("old", "created")]
            expected += [("a", "updated"), ("b", "created"), ("old", "deleted"), ("a", "updated")]
            assert await at.journal() == expected
            assert (await at.store.position(stream_info())).ordinal == 3


@pytest.mark.parametrize("when", ["before", "after"])
async def test_messages_whose_answer_was_lost_are_received_once(
    postgres: Server, postgres_database: str, when: str
) -> None:
    with cutting(postgres) as cutter:
        url = postgres_database.replace(str(postgres.port), str(cutter.port))
        async with SqlStore(url) as store:
            await store.open("east")
            kept = store.messages()
            await kept.open("spoken", handled=False)
            for number in (1, 2, 3):
                answers = iter([when] if number == 2 else [])
                cutter.cut = lambda answers=answers: next(answers, "no")  # type: ignore[misc]
                state = SequencerState(next_number=number + 1)
                release = [(0, message(number))]
                change = SequenceChange(SCOPE, state, due_us=None, release=release)
                await kept.commit(MessageGroup(number, [change], handled=False, deviations={}))
            found = [one.number async for one in store.reader.messages()]
            assert found == [1, 2, 3]
            counted = "SELECT commits, messages FROM instep_receiver"
            assert postgres.execute(counted, postgres_database) == [(3, 3)]


async def test_a_commit_lost_again_and_again_leaves_the_question_to_the_position(
    postgres: Server, postgres_database: str
) -> None:
    with cutting(postgres) as cutter:
        url = postgres_database.replace(str(postgres.port), str(cutter.port))
        async with stage(url) as at:
            cutter.cut = lambda: "after"
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await at.commit(create_update("a", 1))
            cutter.cut = lambda: "no"
            assert (await at.store.position(stream_info())).ordinal == 1
            assert list(await at.entities()) == ["a"]


async def test_a_commit_lost_while_another_process_moved_on_is_fenced(
    postgres: Server, postgres_database: str
) -> None:
    with cutting(postgres) as cutter:
        url = postgres_database.replace(str(postgres.port), str(cutter.port))
        async with stage(url) as at:
            await at.commit(create_update("a", 1))
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
                await at.commit(create_update("a", 2))
            assert await at.bodies() == {"a": b'{"at":1}'}


@pytest.mark.usefixtures("postgres")  # skips where there is no server to start
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
                        await at.commit(
                            *[create_update(f"k{n}", turn, b"x" * 500) for n in range(1_000)]
                        )
                    except StoreUnavailableError:
                        failures += 1
                        await asyncio.sleep(0.02)
                        with contextlib.suppress(StoreUnavailableError):
                            at.position = await at.store.position(stream_info())

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
