"""The DIDComm end of a consumer: receives messages, passes them to the core, answers when they are
durable, and reports to the peers which numbers were received and which are missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from instep.conformance import (
    Event,
    MeteredRecorder,
    RequestAnswered,
    RequestReceived,
    ResendRequested,
)
from instep.errors import ConfigurationError, InstepError, SourceError, StoreUnavailableError
from instep.ports.listener import Intake, Receipt, ReceiptOutcome
from instep.runtime.retry import Environment
from instep.sequencing.effects import AskResend, ReportFault, SequenceEffect, SequenceFailed
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal, SequenceRefusedError
from instep_didcomm.http.client import EnvelopeClient
from instep_didcomm.http.server import MessageServer
from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.identity.keys import SecretKeys
from instep_didcomm.options import Options, load_did_documents, read_options
from instep_didcomm.problems import MessageRefusedError, http_status, refusal_text
from instep_didcomm.sending.endpoints import EndpointResolver
from instep_didcomm.sending.sender import Sender
from instep_didcomm.wire.decoder import Incoming, MessageDecoder
from instep_didcomm.wire.headers import Headers
from instep_didcomm.wire.pack import EnvelopePacker, Packing
from instep_didcomm.wire.protocols import Protocols, peer_of, sender_of, sequence_scope
from instep_didcomm.wire.received_orders import GapDetector, ReceivedOrdersError, detect
from instep_didcomm.wire.unpack import EnvelopeUnpacker
from instep_http import Response, problem
from instep_http.offload import Busy, Offload

__all__ = ["DidcommListener"]

_ORDER: Final = b'"sender_order"'
_ACCEPTED: Final = Response(202)
_FINISH_S: Final = 1.0
_RETRY_AFTER_S: Final = 1
_MOST_PARTIES: Final = 1_000
_MOST_ACKS_WANTED: Final = 10_000
_PROBLEM_CODES: Final = {Refusal.EXPIRED: "e.m.req.time", Refusal.FAILED: "e.p.msg.sequence"}

_log = logging.getLogger("instep.didcomm")


class DidcommListener:
    """Listens for DIDComm messages; `instep.ports.listener.Listener`. Raises `ConfigurationError`.

    Args:
        options: See `read_options`.
        where: The place of the options in the configuration, for errors.
    """

    kind = "didcomm"
    opens_implicitly = True
    """DIDComm has no request to open a sequence: a thread begins with its first message (S9)."""

    def __init__(
        self, options: Options, where: str = "didcomm", environment: Environment | None = None
    ) -> None:
        self._options = options
        self._environment = environment or Environment()
        keys = SecretKeys.read(options.secrets_file, options.secrets_env, f"{where}.secrets")
        documents = DidDocuments(load_did_documents(options, where))
        if options.did is not None and keys.dids and options.did not in keys.dids:
            raise ConfigurationError(
                "none of the secret keys is of this DID",
                where=f"{where}.did",
                hint=f"keys are of {', '.join(keys.dids)[:200]}",
            )
        self.did = options.did or (keys.dids[0] if keys.dids else "")
        """Our own DID; empty for a receiver without one, which cannot send requests."""
        proven = options.require_authenticated
        self._decoder = MessageDecoder(
            EnvelopeUnpacker(keys, documents),
            Protocols(options.protocols),
            frozenset((self.did, *keys.dids)) - {""},
            self._environment.now,
            prove_sender=bool(keys.dids) if proven is None else proven,
            max_age_s=options.max_age_s,
        )
        packing = options.packing or (Packing.AUTHCRYPT if keys.dids else Packing.PLAIN)
        self._packer = EnvelopePacker(keys, documents, packing)
        self._resolver = EndpointResolver(
            options.peers, documents, follow_documents=options.reply_to_documents
        )
        self._server = MessageServer(options, self._on_message, options.server_tls(where))
        self._client_tls = options.client_tls(where)
        self._acks_wanted: set[tuple[str, str]] = set()
        self._acks_under_way: set[tuple[str, str]] = set()
        self._ack_wanted = asyncio.Event()
        self._sender_ready: asyncio.Future[Sender] | None = None
        self._sender: Sender | None = None
        self._intake: Intake | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._offload = Offload()
        self.refused: Counter[str] = Counter()
        """Messages that could not be read or were not proven, by reason; those that their sequence
        refused are counted by the intake."""
        self._logged: set[str] = set()
        self._told_that_it_cannot_send = False
        self._recorder: MeteredRecorder | None = None

    def __repr__(self) -> str:
        return f"<DidcommListener {self.address or self._options.listen}>"

    @property
    def address(self) -> str:
        """The URL that it listens on, with the real port; empty while it does not listen."""
        return self._server.address

    def record(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        """See `Recordable`: each message that was read, our answer to it, and what we ask for
        again.
        """
        self._recorder = MeteredRecorder(recorder, room, self._now_us)

    async def sender(self) -> Sender:
        """Wait until it listens; returns the sender of our own messages. Raises `SourceError`."""
        if not self.did:
            raise _no_did_error()
        return await asyncio.shield(self._sender_future())

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - one for all
        return self._options.sequence

    def peer_of(self, scope: str) -> str:
        """The sender's DID; the name in the certificate where no key proves the sender."""
        return peer_of(scope)

    def reconfigure(self, options: Mapping[str, Any], where: str) -> Collection[str]:
        """See `ReconfigurableListener`: the bounds of its server."""
        self._options, left = self._options.with_limits_of(read_options(options, where))
        self._server.reconfigure(self._options.limits())
        return left

    async def serve(self, intake: Intake) -> None:
        options, environment = self._options, self._environment
        self._intake = intake
        intake.show_refusals(self.refused)
        intake.show_refusals(self._server.refused)
        client = EnvelopeClient(
            self._client_tls,
            options.send_timeout_s,
            options.send_attempts,
            environment,
            private_endpoints=options.allow_private_endpoints,
        )
        async with client:
            if self.did:
                self._sender = Sender(
                    self.did,
                    intake.outbox,
                    self._packer,
                    self._resolver,
                    client,
                    self._received_orders,
                    options.outbox,
                    environment,
                )
            try:
                await self._server.start()
                await self._run_sender()
            finally:
                ready, self._sender_ready = self._sender_ready, None
                if ready is not None and not ready.done():
                    ready.set_exception(SourceError("it does not listen", where=options.listen))
                await self._server.stop()
                await self._finish_tasks()

    async def carry_out(self, scope: str, effect: SequenceEffect) -> bool:
        thid, peer = scope.partition(" ")[0], sender_of(scope)
        if not isinstance(effect, (AskResend, ReportFault, SequenceFailed)):
            return False
        sender = self._sender
        if sender is None:
            if self._told_that_it_cannot_send:
                return False
            # Once: whatever is owed to whom, trying again does not help.
            self._told_that_it_cannot_send = True
            raise _no_did_error()
        match effect:
            case AskResend(missing):
                await sender.send_received_orders(thid, peer)
                self._record(ResendRequested(self._now_us(), scope, tuple(missing)))
            case ReportFault(faulted, reason):
                numbers = ", ".join(f"{low}-{high}" for low, high in faulted[:100])
                code = _PROBLEM_CODES.get(reason, "e.m.msg")
                await sender.report_problem(thid, peer, code, f"messages {numbers}: {reason!s}")
            case SequenceFailed(reason=text):
                await sender.report_problem(thid, peer, _PROBLEM_CODES[Refusal.FAILED], text)
        return True

    async def close(self) -> None:
        await self._server.stop()

    async def _finish_tasks(self) -> None:
        """Wait `_FINISH_S` for messages in progress: they need the client and the intake."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_FINISH_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _run_sender(self) -> None:
        """Send our own messages and acknowledgements until cancelled."""
        sender = self._sender
        if sender is None:
            await asyncio.Event().wait()
            return
        self._sender_future().set_result(sender)
        async with asyncio.TaskGroup() as group:
            group.create_task(sender.run())
            group.create_task(self._send_wanted_acks(sender))

    def _sender_future(self) -> asyncio.Future[Sender]:
        if self._sender_ready is None:
            self._sender_ready = asyncio.get_running_loop().create_future()
        return self._sender_ready

    def _on_message(
        self, raw: bytes, content_type: str, certificate: str, respond: Callable[[Response], None]
    ) -> None:
        """Receive a message: a small plain one without a task, any other in a task of its own."""
        assert self._intake is not None
        incoming = None
        if len(raw) <= self._offload.small_bytes:
            try:
                incoming = self._decoder.decode_plain(raw, content_type, certificate)
            except MessageRefusedError as error:
                self._record_unread(raw)
                respond(self._unread(error))
                return
        if (
            incoming is None
            or incoming.message is None
            or incoming.counts_in
            or incoming.headers.received_orders
        ):
            task = asyncio.ensure_future(self._process(raw, content_type, certificate, respond))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        for kind in incoming.deviations:
            self._intake.report_deviation(kind)
        self._intake.submit(
            incoming.message,
            _Answer(self, incoming.headers, self._recorded(incoming, respond)),
            incoming.settings,
        )

    def on_receipt(
        self, headers: Headers, respond: Callable[[Response], None], receipt: Receipt | InstepError
    ) -> None:
        """Respond to a message by what became of it."""
        if isinstance(receipt, InstepError):
            respond(self._unavailable(receipt))
        elif receipt.outcome is ReceiptOutcome.REFUSED or receipt.deviation:
            respond(self._refused_by_sequence(receipt))
        else:
            self._note_sender(headers)
            respond(_ACCEPTED)

    async def _process(
        self, raw: bytes, content_type: str, certificate: str, respond: Callable[[Response], None]
    ) -> None:
        try:
            incoming = await self._offload.run(
                len(raw), self._decoder.decode_now, raw, content_type, certificate
            )
            respond = self._recorded(incoming, respond)
            response = await self._commit(incoming)
        except MessageRefusedError as error:
            response = self._unread(error)
        except Busy:
            self.refused["busy"] += 1
            response = self._refuse(503, "busy", "too much is being read: send it again")
        except InstepError as error:
            response = self._unavailable(error)
        except Exception:  # noqa: BLE001 - a waiting sender is answered
            _log.exception("a message could not be read for a reason of our own")
            response = problem(500, "internal", "it could not be read")
        respond(response)

    def _now_us(self) -> int:
        return int(self._environment.now() * 1e6)

    def _record(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder(event)

    def _recorded(
        self, incoming: Incoming, respond: Callable[[Response], None]
    ) -> Callable[[Response], None]:
        """Record a message, and return what records its response and gives it."""
        message, record = incoming.message, self._recorder
        if message is None or record is None or not record.takes_next():
            return respond
        # What was proven and decrypted, not the transmission.
        scope, order = message.scope, incoming.headers.sender_order or None
        digest = message.digest.hex()
        record(RequestReceived(self._now_us(), scope, order, digest, message.body))

        def responded(response: Response) -> None:
            accepted = response.status < 300
            reason = "" if accepted else str(response.status)
            record(RequestAnswered(self._now_us(), scope, order, accepted, reason))
            respond(response)

        return responded

    def _record_unread(self, raw: bytes) -> None:
        """Record a plaintext that is refused, if it has an order: others are of strangers."""
        record = self._recorder
        if record is not None and _ORDER in raw and record.takes_next():
            record(RequestReceived(self._now_us(), "", None, "", raw))

    async def _commit(self, incoming: Incoming) -> Response:
        intake = self._intake
        assert intake is not None
        for kind in incoming.deviations:
            intake.report_deviation(kind)
        if incoming.message is not None:
            receipt = await intake.receive(incoming.message, incoming.settings)
            if receipt.outcome is ReceiptOutcome.REFUSED or receipt.deviation:
                return self._refused_by_sequence(receipt)
        if incoming.counts_in:
            try:
                await intake.count(incoming.counts_in, incoming.headers.sender_order)
            except SequenceRefusedError as error:
                # A sequence that is over counts nothing more; what else is in the message stands.
                if http_status(error.refusal) != 410:
                    return self._refuse(
                        http_status(error.refusal), error.refusal, refusal_text(error.refusal)
                    )
        self._note_sender(incoming.headers)
        await self._process_acks(incoming.headers, intake)
        return _ACCEPTED

    def _refused_by_sequence(self, receipt: Receipt) -> Response:
        if receipt.deviation:
            # 202 would say that it is durable (S3), and it is dropped.
            return self._refuse(
                409,
                "content-changed",
                "another message was received under this sender_order, and this one is not kept: "
                "a sender that numbers anew begins a new thread",
            )
        refusal = receipt.refusal or Refusal.UNPROCESSABLE
        return self._refuse(http_status(refusal), refusal, refusal_text(refusal))

    def _unavailable(self, error: InstepError) -> Response:
        _log.debug("a message cannot be taken now: %s", error)
        away = isinstance(error, StoreUnavailableError)
        text = refusal_text(Refusal.UNAVAILABLE) if away else "it cannot be kept now"
        return self._refuse(503, error.code, text)

    def _unread(self, error: MessageRefusedError) -> Response:
        self.refused[error.reason] += 1
        return self._refuse(error.status, error.reason, error.message)

    def _refuse(self, status: int, code: str, detail: str) -> Response:
        # The first of each kind is a warning; a hostile sender must not fill the log.
        level = logging.DEBUG if code in self._logged else logging.WARNING
        self._logged.add(code)
        _log.log(level, "a message is refused: %s: %s", code, detail)
        return problem(status, code, detail, _RETRY_AFTER_S if status == 503 else 0)

    def _note_sender(self, headers: Headers) -> None:
        """Record whether the sender wants an ack."""
        if (
            headers.sender
            and headers.please_ack
            and self._sender is not None
            and len(self._acks_wanted) + len(self._acks_under_way) < _MOST_ACKS_WANTED
        ):
            self._acks_wanted.add((headers.thid, headers.sender))
            self._ack_wanted.set()

    async def _process_acks(self, headers: Headers, intake: Intake) -> None:
        """Pass the sender's report of our messages (`received_orders`) to the outbox."""
        sender = self._sender
        if sender is not None and headers.sender and headers.received_orders:
            try:
                await sender.acknowledge(headers.thid, headers.sender, headers.received_orders)
            except ReceivedOrdersError as error:
                intake.report_deviation("received-orders-wrong")
                _log.info("received_orders of %.80s: %s", headers.sender, error)

    async def _send_wanted_acks(self, sender: Sender) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._ack_wanted.wait()
                await asyncio.sleep(self._options.ack_delay_s)
                self._ack_wanted.clear()
                # An ack under way may carry an older state: the next one waits for it.
                wanted = self._acks_wanted - self._acks_under_way
                self._acks_wanted -= wanted
                self._acks_under_way |= wanted
                for thid, peer in wanted:
                    group.create_task(self._send_ack(sender, thid, peer))

    async def _send_ack(self, sender: Sender, thid: str, peer: str) -> None:
        try:
            # A sender that receives no ack sends again, and asks again.
            with suppress(InstepError):
                await sender.send_received_orders(thid, peer)
        except Exception:  # noqa: BLE001 - what a peer states may lead to any mistake of ours
            _log.exception("an ack could not be sent for a reason of our own")
        finally:
            self._acks_under_way.discard((thid, peer))
        if (thid, peer) in self._acks_wanted:
            self._ack_wanted.set()

    async def _received_orders(self, thid: str, parties: Sequence[str]) -> list[GapDetector]:
        assert self._intake is not None
        named = [sequence_scope(thid, party) for party in parties]
        known = await self._intake.scopes(sequence_scope(thid, ""), _MOST_PARTIES)
        detectors: dict[str, GapDetector] = {}
        for scope in dict.fromkeys([*named, *known]):
            party = sender_of(scope)
            claims = await self._intake.claims(scope) if party not in detectors else None
            if claims is not None and claims.highest is not None:
                detectors[party] = detect(party, claims)
        return list(detectors.values())


class _Answer(msgspec.Struct, gc=False):
    """Responds to one message. Many wait for a commit, and the garbage collector passes them."""

    listener: DidcommListener
    headers: Headers
    respond: Callable[[Response], None]

    def __call__(self, receipt: Receipt | InstepError) -> None:
        self.listener.on_receipt(self.headers, self.respond, receipt)


def _no_did_error() -> SourceError:
    return SourceError(
        "a receiver without a DID cannot send",
        where="didcomm",
        hint='did = "did:…", or secrets_file',
    )
