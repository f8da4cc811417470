"""What a pooler between makes of the end of a session: errors of its own, in words of its own.

A relay plays it here, byte by byte; `test_pooler` has a real one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, exc

from instep.errors import SinkError, StoreUnavailableError
from instep_sql import SqlStore
from instep_sql.engine.dialect import FailureKind
from instep_sql.engine.postgres.errors import failure_kind
from tests.instep_sql.store_kit import create_update, stage
from tests.postgres_kit import Server


def error_response(code: str, text: str, severity: str = "FATAL") -> bytes:
    fields = f"S{severity}\0V{severity}\0C{code}\0M{text}\0\0".encode()
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


ENDED = error_response("57P01", "terminating connection due to administrator command")
"""Of the server. The pooler passes it on, and then says what it thinks of it."""
READY = b"Z\x00\x00\x00\x05I"


class Spoiler:
    """Forwards one port to another. The first time that a client sends `marker`, it gets `answer`
    instead, and after a while the connection is closed.
    """

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.marker, self.answer, self.close_after_s = b"", b"", 0.0
        self.times = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def spoil(self, marker: str, answer: bytes, close_after_s: float = 0.0) -> None:
        self.answer, self.close_after_s = answer, close_after_s
        self.marker = marker.encode()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._to) as server, contextlib.suppress(OSError):
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            while data := client.recv(1 << 16):
                if self.marker and self.marker in data:
                    self.marker = b""
                    self.times += 1
                    client.sendall(self.answer)
                    time.sleep(self.close_after_s)
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)

    def close(self) -> None:
        self._server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


@pytest.fixture
def spoiler(postgres: Server) -> Iterator[Spoiler]:
    made = Spoiler(postgres.port)
    yield made
    made.close()


ANSWERS = {
    "two": ENDED + error_response("08P01", "server conn crashed?"),
    "two-and-ready": ENDED + READY + error_response("08P01", "server conn crashed?"),
    "error-and-fatal": error_response("57P01", "terminating connection", "ERROR")
    + error_response("08P01", "bouncer: server closed the connection"),
    "own": error_response("08P01", "query_wait_timeout"),
    "fatal-of-no-known-code": error_response("XX000", "out of step"),
    "nothing": b"",
    "no-message-of-the-protocol": b"?" * 64,
}


@pytest.mark.parametrize("marker", ["BEGIN", "INSERT INTO instep_entity", "COMMIT"])
@pytest.mark.asyncio
async def test_a_session_that_a_pooler_ends_is_begun_again(
    spoiler: Spoiler, postgres_database: str, marker: str
) -> None:
    url = postgres_database.replace(f":{_port(postgres_database)}/", f":{spoiler.port}/")
    async with stage(url, journal="changes") as at:
        await at.commit(create_update("first", 1))
        for number, answer in enumerate(ANSWERS.values(), 2):
            # One that closes after the error was judged.
            spoiler.spoil(marker, answer, 0.1 if number == 2 else 0.0)
            await at.commit(create_update(f"k{number}", number))
            assert spoiler.times == number - 1
        keys = ["first", *(f"k{number}" for number in range(2, len(ANSWERS) + 2))]
        assert await at.journal() == [(key, "created") for key in keys]


def _port(url: str) -> str:
    return url.rpartition(":")[2].partition("/")[0]


@pytest.mark.parametrize("statement", ["SELECT pg_backend_pid()", "set_config"])
@pytest.mark.asyncio
async def test_a_session_that_is_ended_as_it_begins_is_unavailable_not_final(
    spoiler: Spoiler, postgres_database: str, statement: str
) -> None:
    url = postgres_database.replace(f":{_port(postgres_database)}/", f":{spoiler.port}/")
    async with SqlStore(url) as store:
        spoiler.spoil(statement, ANSWERS["two"])
        await store.open("east")
    assert spoiler.times == 1


@pytest.fixture
def engine(postgres: Server) -> Iterator[Engine]:
    made = create_engine(postgres.url().replace("postgresql:", "postgresql+psycopg:"))
    yield made
    made.dispose()


WITHOUT_CODE = [
    psycopg.InterfaceError("unexpected result PIPELINE_ABORTED from command 'BEGIN'"),
    psycopg.DatabaseError("message contents do not agree with length"),
    psycopg.ProgrammingError("can't change 'autocommit' now"),
    psycopg.NotSupportedError("the server says what this driver does not know"),
    exc.PendingRollbackError("Can't reconnect until invalid transaction is rolled back."),
]
WITH_CODE = [psycopg.errors.SyntaxError("no"), psycopg.errors.InternalError_("XX000")]


@pytest.mark.parametrize("error", [*WITHOUT_CODE, *WITH_CODE], ids=repr)
def test_what_is_final_on_a_good_connection_is_a_loss_on_a_broken_one(
    engine: Engine, postgres: Server, error: Exception
) -> None:
    with engine.connect() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        assert failure_kind(error, connection) is FailureKind.FINAL
        assert failure_kind(error) is FailureKind.FINAL
        # Ended by the server, and this side has not read it yet.
        postgres.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
        assert failure_kind(error, connection) is FailureKind.LOST
        connection.invalidate()
        assert failure_kind(error, connection) is FailureKind.LOST


def test_two_results_for_one_command_are_a_loss_while_the_socket_is_open(engine: Engine) -> None:
    two = psycopg.InternalError("received 2 results from command 'BEGIN'")
    with engine.connect() as connection:
        assert failure_kind(two, connection) is FailureKind.LOST


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("query_wait_timeout", FailureKind.LOST),
        ("no more connections allowed (max_client_conn)", FailureKind.LOST),
        ("pgbouncer cannot connect to server", FailureKind.LOST),
        (
            "server login has been failing, try again later (server_login_retry)",
            FailureKind.LOST,
        ),
        ("server_login_retry", FailureKind.LOST),
        ("server closed the connection unexpectedly", FailureKind.LOST),
        ("the database system is starting up", FailureKind.LOST),
        ("the database system is shutting down", FailureKind.LOST),
        ("the database system is in recovery mode", FailureKind.LOST),
        ("the database system is not accepting connections", FailureKind.LOST),
        ("sorry, too many clients already", FailureKind.LOST),
        ('password authentication failed for user "x"', FailureKind.FINAL),
        ("unsupported startup parameter: options", FailureKind.FINAL),
        ("unsupported startup parameter in options: geqo", FailureKind.FINAL),
        ("transaction blocks not allowed in statement pooling mode", FailureKind.FINAL),
        ("no such database: x", FailureKind.FINAL),
        ("no such user: x", FailureKind.FINAL),
    ],
)
def test_a_refused_connection_is_tried_again_unless_it_will_never_be_taken(
    text: str, kind: FailureKind
) -> None:
    failed = psycopg.OperationalError(f"connection failed: FATAL:  {text}")
    assert failure_kind(failed) is kind


@pytest.mark.asyncio
async def test_a_server_that_takes_no_writes_is_left_for_another_of_its_name(
    postgres: Server, postgres_database: str
) -> None:
    name = postgres_database.rpartition("/")[2]
    async with stage(postgres_database) as at:
        await at.commit(create_update("a", 1))
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        # The session is older than the setting, and goes on.
        await at.commit(create_update("a", 2))
        postgres.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        with pytest.raises(StoreUnavailableError, match="takes no writes") as caught:
            await at.commit(create_update("a", 3))
        assert caught.value.data["sqlstate"] == "25006"
        postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        # Only a new session learns of it: the old one would be read-only for ever.
        await at.commit(create_update("a", 3))
        assert await at.bodies() == {"a": b'{"at":3}'}


@pytest.mark.asyncio
async def test_a_statement_that_never_was_prepared_names_the_pooler(
    spoiler: Spoiler, postgres_database: str
) -> None:
    url = postgres_database.replace(f":{_port(postgres_database)}/", f":{spoiler.port}/")
    async with stage(url) as at:
        gone = error_response("26000", 'prepared statement "_pg3_5" does not exist', "ERROR")
        spoiler.spoil("INSERT INTO instep_entity", gone + READY, 5.0)
        with pytest.raises(SinkError, match="a pooler that is not recognized"):
            await at.commit(create_update("a", 1))
