"""A receiver over the real store and a real server: in order, once, acknowledged when durable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.js.client import JetStreamContext

from instep import ConsumerState, HandlerConnection, Message, Receiver
from instep.errors import AuthenticationError, InstepError, SourceError, TlsError
from instep.sequencing import SequencePhase
from instep_nats import read_options
from instep_nats.plugin import listener
from instep_sql import SqlStore
from tests.instep_http.certificates_kit import Certificates
from tests.nats_kit import NatsServer, nats_server, publish, until

pytestmark = pytest.mark.asyncio


class Heard:
    """What the handler got."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failing = False

    async def __call__(self, message: Message, _: HandlerConnection) -> None:
        if self.failing:
            raise RuntimeError("not now")
        self.messages.append(message)

    def numbers(self, scope: str) -> list[int]:
        return [message.number for message in self.messages if message.scope == scope]


def _table(url: str, **options: Any) -> dict[str, Any]:
    return {
        "servers": url,
        "stream": "ORDERS",
        "number": "member:number",
        "ack_wait_s": 1.0,
        "retry_s": 0.1,
        "reconnect_initial_s": 0.05,
        "reconnect_max_s": 0.2,
        **options,
    }


@asynccontextmanager
async def receiving(
    server: NatsServer, heard: Heard | None = None, store: str = "sqlite://", **options: Any
) -> AsyncIterator[Receiver]:
    one = listener(read_options(_table(server.url, **options), "source"), "source")
    async with Receiver("x", one, SqlStore(store), handler=heard) as receiver:
        await receiver.aligned(timeout_s=30)
        yield receiver


async def unanswered(js: JetStreamContext) -> tuple[int, int]:
    """How many messages the server still has to deliver, and waits for an answer of."""
    info = await js.consumer_info("ORDERS", "instep")
    return info.num_pending or 0, info.num_ack_pending or 0


async def settled(js: JetStreamContext) -> None:
    """Wait until all that was published is answered: a consumer may not have heard of it yet."""
    last = (await js.stream_info("ORDERS")).state.last_seq
    async with asyncio.timeout(60):
        while True:
            floor = (await js.consumer_info("ORDERS", "instep")).ack_floor
            if floor is not None and floor.stream_seq >= last:
                return
            await asyncio.sleep(0.02)


async def test_messages_are_handled_in_order_once_and_acknowledged() -> None:
    heard = Heard()
    async with nats_server() as server, server.stream() as js:
        await publish(js, "orders.a", 1)
        async with receiving(server, heard) as receiver:
            assert receiver.address == f"{server.url}/ORDERS"
            for place, number in enumerate((3, 2, 4, 2, 5)):
                # Of another id each time, else the server drops the copy.
                await publish(js, "orders.a", number, {"Nats-Msg-Id": f"{number}-{place}"})
            await publish(js, "orders.b", 1)
            await until(lambda: len(heard.messages) == 6)
            assert heard.numbers("orders.a") == [1, 2, 3, 4, 5]
            assert heard.numbers("orders.b") == [1]
            await settled(js)
            health = receiver.health().intake
            assert health
            assert (health.accepted, health.duplicates, health.refused) == (6, 1, 0)
            first = heard.messages[0]
            assert first.id == "ORDERS/1"
            attributes = json.loads(first.attributes)
            assert attributes == {"subject": "orders.a", "position": "ORDERS/1", "headers": {}}


async def test_number_scope_and_id_are_where_the_configuration_says() -> None:
    heard = Heard()
    fields = {
        "number": "header:Seq", "scope": "member:lot.name", "id": "subject:2",
    }  # fmt: skip
    async with nats_server() as server, server.stream() as js, receiving(server, heard, **fields):
        body = json.dumps({"lot": {"name": "seven"}}).encode()
        for number in ("2", "1"):
            await js.publish(f"orders.n{number}", body, headers={"Seq": number})
        await until(lambda: len(heard.messages) == 2)
        assert [(m.scope, m.number, m.id) for m in heard.messages] == [
            ("seven", 1, "n1"),
            ("seven", 2, "n2"),
        ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no json", "no JSON"),
        (b"[" * 900, "no JSON"),
        (b'{"n": 1}', "no number"),
        (b'{"number": -1}', "out of range"),
        (b'{"number": 1.5}', "its number"),
        (b'{"number": true}', "its number"),
        (b'{"number": 99999999999999999999}', "out of range"),
        (b'{"number": 1, "more": "' + b"x" * 2000 + b'"}', "more than 1,000 bytes"),
    ],
)
async def test_what_is_no_numbered_message_is_refused_and_holds_up_nothing(
    body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    async with nats_server() as server, server.stream() as js:
        told: list[bytes] = []

        async def note(message: Any) -> None:
            told.append(message.data)

        await js._nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", cb=note)
        async with receiving(server, heard, max_message_bytes=1000) as receiver:
            await js.publish("orders.a", body)
            await publish(js, "orders.a", 1)
            await until(lambda: heard.numbers("orders.a") == [1])
            await settled(js)
            health = receiver.health().intake
            assert health
            assert health.refusals == {"unreadable": 1}
            await until(lambda: len(told) == 1)
            assert reason in json.loads(told[0])["reason"]
            assert reason in caplog.text


async def test_other_content_under_a_number_is_refused_and_not_acknowledged() -> None:
    heard = Heard()
    async with nats_server() as server, server.stream() as js:
        told: list[bytes] = []

        async def note(message: Any) -> None:
            told.append(message.data)

        await js._nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", cb=note)
        async with receiving(server, heard) as receiver:
            await js.publish("orders.a", b'{"number": 1, "x": 1, "y": 2}')
            await js.publish("orders.a", b'{"y": 2, "x": 1, "number": 1}')
            await js.publish("orders.a", b'{"number": 1, "x": 2}')
            await until(lambda: len(told) == 1)
            assert "another message" in json.loads(told[0])["reason"]
            health = receiver.health().intake
            assert health
            assert (health.accepted, health.duplicates) == (1, 2)
            assert health.deviations == {"content-changed": 1}
            await until(lambda: len(heard.messages) == 1)


async def test_what_waits_behind_a_gap_is_acknowledged_when_it_is_durable(tmp_path: Path) -> None:
    heard = Heard()
    store = f"sqlite:///{tmp_path}/x.db"
    async with nats_server() as server, server.stream() as js:
        async with receiving(server, heard, store):
            for number in (1, 3, 4):
                await publish(js, "orders.a", number)
            await settled(js)
            # The handler comes after the answer.
            await until(lambda: heard.numbers("orders.a") == [1])
        async with receiving(server, heard, store):
            await publish(js, "orders.a", 2)
            await until(lambda: 4 in heard.numbers("orders.a"))
            # A stop between the handler and its commit rolls back: 1 is handled once more.
            assert heard.numbers("orders.a") in ([1, 2, 3, 4], [1, 1, 2, 3, 4])


async def test_a_message_of_a_failed_sequence_stays_with_the_broker() -> None:
    heard = Heard()
    gap = {"gap_deadline_s": 1.05, "gap_repeat_s": 0.05, "gap_attempts": 1}
    options: dict[str, Any] = {"sequence": gap, "retry_failed_s": 0.1}
    async with (
        nats_server() as server,
        server.stream() as js,
        receiving(server, heard, **options) as receiver,
    ):
        for number in (1, 3):
            await publish(js, "orders.a", number)
        intake = receiver.intake
        assert intake
        async with asyncio.timeout(60):
            while True:
                state = await intake.state("orders.a")
                if state is not None and state.phase is SequencePhase.FAILED:
                    break
                await asyncio.sleep(0.02)
        await publish(js, "orders.a", 4)

        def refused_times() -> int:
            health = receiver.health().intake
            return health.refusals.get("failed", 0) if health else 0

        await until(lambda: refused_times() >= 2)
        # Other sequences go on.
        await publish(js, "orders.b", 1)
        await until(lambda: heard.numbers("orders.b") == [1])
        assert (await unanswered(js))[1] == 1


async def test_bounds_hold_up_the_broker_and_lose_nothing() -> None:
    heard = Heard()
    async with nats_server() as server, server.stream() as js:
        for number in range(1, 301):
            await publish(js, "orders.a", number)
        async with receiving(server, heard, limit_messages=7, limit_bytes=200):
            await until(lambda: len(heard.messages) == 300)
            assert heard.numbers("orders.a") == list(range(1, 301))
            await settled(js)


async def test_a_server_that_is_killed_is_connected_to_again() -> None:
    heard = Heard()
    async with nats_server() as server:
        async with server.stream() as js:
            await publish(js, "orders.a", 1)
        async with receiving(server, heard) as receiver:
            await until(lambda: len(heard.messages) == 1)
            server.stop()
            await until(lambda: not receiver.address)
            assert receiver.health().error
            await server.start()
            async with server.stream() as js:
                await publish(js, "orders.a", 2)
                await until(lambda: heard.numbers("orders.a") == [1, 2])
                assert not receiver.health().error


async def test_a_server_that_is_away_at_the_start_is_never_called_well() -> None:
    async with nats_server() as server:
        async with server.stream():
            server.stop()
        one = listener(read_options(_table(server.url), "source"), "source")
        async with Receiver("x", one, SqlStore("sqlite://")) as receiver:
            states = {receiver.health().state}
            # The client library asks a server that refuses again for ten seconds.
            async with asyncio.timeout(5):
                while "Connect call failed" not in receiver.health().error:
                    states.add(receiver.health().state)
                    await asyncio.sleep(0.005)
            assert states <= {ConsumerState.STARTING, ConsumerState.RETRYING}
            await server.start()
            await receiver.aligned(timeout_s=30)
            assert receiver.health().state is ConsumerState.RUNNING


async def test_a_stop_answers_what_was_taken_and_gives_back_the_rest(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/x.db"
    async with nats_server() as server, server.stream() as js:
        for number in range(1, 101):
            await publish(js, "orders.a", number)
        heard = Heard()
        async with receiving(server, heard, store, ack_wait_s=50.0):
            await until(lambda: len(heard.messages) > 0)
        # Without waiting for ack_wait.
        async with receiving(server, heard, store, ack_wait_s=50.0):
            await until(lambda: heard.numbers("orders.a") == list(range(1, 101)))
            await settled(js)


async def refused(server: NatsServer, **options: Any) -> InstepError:
    with pytest.raises(InstepError) as caught:
        async with receiving(server, **options):
            pass
    return caught.value


async def test_a_stream_that_is_missing_is_told_at_the_start() -> None:
    async with nats_server() as server:
        error = await refused(server)
        assert isinstance(error, SourceError)
        assert "no stream 'ORDERS'" in str(error)


async def test_a_consumer_that_loses_messages_is_not_used() -> None:
    async with nats_server() as server, server.stream() as js:
        await js.add_consumer("ORDERS", durable_name="instep", max_deliver=3, ack_policy="explicit")
        assert "gives a message up after 3" in str(await refused(server))


async def test_a_login_is_given_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    login = {"user": "me", "password": "s3cr3t-word"}
    async with (
        nats_server('authorization { user: "me", password: "s3cr3t-word" }') as server,
        server.stream(**login) as js,
    ):
        heard = Heard()
        async with receiving(server, heard, **login) as receiver:
            await publish(js, "orders.a", 1)
            await until(lambda: len(heard.messages) == 1)
            assert "s3cr3t" not in f"{receiver!r} {receiver.health()!r}"
        error = await refused(server, user="me", password="wr0ng-word")
        assert isinstance(error, AuthenticationError)
        assert "wr0ng" not in f"{error} {error.data!r}"
    assert "s3cr3t" not in caplog.text
    assert "wr0ng" not in caplog.text


async def test_tls_is_verified_and_insisted_on(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    cert, ca = made.tls["cert"], made.tls["client_ca"]
    key = made.tls.get("key") or cert
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'
    async with nats_server(tls) as server:
        url = server.url.replace("nats://127.0.0.1", "tls://localhost")
        # It is verified first; then there is no stream.
        error = await refused(server, servers=url, tls={"ca": ca})
        assert "no stream" in str(error)
        assert isinstance(await refused(server, servers=url), TlsError)
    async with nats_server('authorization { token: "t0ken" }') as server:
        url = server.url.replace("nats://", "tls://")
        error = await refused(server, servers=url, token="t0ken", tls={"ca": ca})
        assert isinstance(error, TlsError)
        assert "offers no TLS" in str(error)
