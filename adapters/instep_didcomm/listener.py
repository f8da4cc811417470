"""The DIDComm end of a consumer: takes messages, gives them to the core, answers when they are
durable, and tells the peers what was received and what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from instep.errors import ConfigurationError, InstepError, SourceError
from instep.messages import Receipt, ReceiptOutcome, Reception
from instep.received_orders import GapDetector, ReceivedOrdersError
from instep.retry import Environment
from instep.sequence_effects import AskResend, ReportFault, SequenceEffect, SequenceFailed
from instep.sequence_settings import SequencerSettings
from instep.sequence_transitions import Refusal
from instep_didcomm.answer import Answer
from instep_didcomm.courier import Courier
from instep_didcomm.directory import Directory
from instep_didcomm.documents import Documents
from instep_didcomm.headers import Headers
from instep_didcomm.keys import Keys
from instep_didcomm.options import Options, given_documents, server_tls, session_tls
from instep_didcomm.pack import EnvelopePacker, Packing
from instep_didcomm.protocols import Protocols, sequence_scope
from instep_didcomm.reading import Incoming, MessageReader
from instep_didcomm.refusal import MessageRefusedError, status_of
from instep_didcomm.sender import Sender
from instep_didcomm.server import MessageServer
from instep_didcomm.unpack import EnvelopeUnpacker

__all__ = ["DidcommListener"]

_TAKEN: Final = Answer()
_RETRY_AFTER_S: Final = 1
_MOST_THREADS: Final = 10_000
_MOST_PARTIES: Final = 1_000
_MOST_ASKED: Final = 10_000
_PROBLEM_CODES: Final = {Refusal.EXPIRED: "e.m.req.time", Refusal.FAILED: "e.p.msg.sequence"}

_log = logging.getLogger("instep.didcomm")


class DidcommListener:
    """Listens for DIDComm messages; `instep.Listener`. Raises `ConfigurationError`.

    Args:
        options: See `read_options`.
        where: The name of their place, for errors.
    """

    kind = "didcomm"

    def __init__(
        self, options: Options, where: str = "didcomm", environment: Environment | None = None
    ) -> None:
        self._options = options
        self._environment = environment or Environment()
        keys = Keys.read(options.secrets_file, options.secrets_env, f"{where}.secrets")
        documents = Documents(given_documents(options, where))
        if options.did is not None and keys.dids and options.did not in keys.dids:
            raise ConfigurationError(
                "none of the secret keys is of this DID",
                where=f"{where}.did",
                hint=f"keys are of {', '.join(keys.dids)[:200]}",
            )
        self.did = options.did or (keys.dids[0] if keys.dids else "")
        """Who we are; empty for a receiver without a name, which cannot ask for anything."""
        proven = options.require_authenticated
        self._reader = MessageReader(
            EnvelopeUnpacker(keys, documents),
            Protocols(options.protocols),
            frozenset((self.did, *keys.dids)) - {""},
            self._environment.now,
            prove_sender=bool(keys.dids) if proven is None else proven,
        )
        packing = options.packing or (Packing.AUTHCRYPT if keys.dids else Packing.PLAIN)
        self._packer = EnvelopePacker(keys, documents, packing)
        self._directory = Directory(
            options.peers, documents, follow_documents=options.reply_to_documents
        )
        self._server = MessageServer(options, self._take, server_tls(options, where))
        self._session_tls = session_tls(options, where)
        self._parties: OrderedDict[str, dict[str, None]] = OrderedDict()
        self._asked: set[tuple[str, str]] = set()
        self._wakes = asyncio.Event()
        self._ready: asyncio.Future[Sender] | None = None
        self._sender: Sender | None = None
        self._reception: Reception | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self.refused: Counter[str] = Counter()
        """Messages not taken, by reason."""

    def __repr__(self) -> str:
        return f"<DidcommListener {self.address or self._options.listen}>"

    @property
    def address(self) -> str:
        """Where it listens, with the real port; empty while it does not."""
        return self._server.address

    async def sender(self) -> Sender:
        """Waits until it listens; then what sends our own messages. Raises `SourceError`."""
        if not self.did:
            raise _nameless()
        return await asyncio.shield(self._promise())

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - one for all
        return self._options.sequence

    async def serve(self, reception: Reception) -> None:
        options, environment = self._options, self._environment
        self._reception = reception
        courier = Courier(
            self._session_tls, options.send_timeout_s, options.send_attempts, environment.rng
        )
        async with courier:
            if self.did:
                self._sender = Sender(
                    self.did,
                    reception.outbox,
                    self._packer,
                    self._directory,
                    courier,
                    self._detectors,
                    options.outbox,
                    environment,
                )
            try:
                await self._server.start()
                await self._work()
            finally:
                ready, self._ready = self._ready, None
                if ready is not None and not ready.done():
                    ready.set_exception(SourceError("it does not listen", where=options.listen))
                await self._server.stop()

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        thid, _, peer = scope.partition(" ")
        if not isinstance(effect, (AskResend, ReportFault, SequenceFailed)):
            return
        sender = self._sender
        if sender is None:
            raise _nameless()
        match effect:
            case AskResend():
                await sender.tell(thid, peer)
            case ReportFault(faulted, reason):
                numbers = ", ".join(f"{low}-{high}" for low, high in faulted[:100])
                code = _PROBLEM_CODES.get(reason, "e.m.msg")
                await sender.report_problem(thid, peer, code, f"messages {numbers}: {reason!s}")
            case SequenceFailed(reason=text):
                await sender.report_problem(thid, peer, _PROBLEM_CODES[Refusal.FAILED], text)

    async def close(self) -> None:
        await self._server.stop()

    async def _work(self) -> None:
        """What goes on beside the receiving, until cancelled."""
        sender = self._sender
        if sender is None:
            await asyncio.Event().wait()
            return
        self._promise().set_result(sender)
        async with asyncio.TaskGroup() as group:
            group.create_task(sender.run())
            group.create_task(self._tell_who_asked(sender))

    def _promise(self) -> asyncio.Future[Sender]:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
        return self._ready

    def _take(self, raw: bytes, content_type: str, answer: Callable[[Answer], None]) -> None:
        """Take a message: a plain one with a few calls and no task, any other with one."""
        assert self._reception is not None
        incoming = None
        try:
            incoming = self._reader.read_plain(raw, content_type)
        except MessageRefusedError as error:
            answer(self._refusal(error.status, error.reason, error.message))
            return
        if incoming is None or incoming.message is None or incoming.headers.received_orders:
            task = asyncio.ensure_future(self._taken(raw, content_type, answer))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)
            return
        for kind in incoming.deviations:
            self._reception.deviated(kind)
        self._reception.submit(incoming.message, partial(self._receipt, incoming.headers, answer))

    def _receipt(
        self, headers: Headers, answer: Callable[[Answer], None], receipt: Receipt | InstepError
    ) -> None:
        if isinstance(receipt, InstepError):
            answer(self._unable(receipt))
        elif receipt.outcome is ReceiptOutcome.REFUSED:
            answer(self._not_received(receipt))
        else:
            self._remember(headers)
            answer(_TAKEN)

    async def _taken(self, raw: bytes, content_type: str, answer: Callable[[Answer], None]) -> None:
        try:
            said = await self._receive(await self._reader.read(raw, content_type))
        except MessageRefusedError as error:
            said = self._refusal(error.status, error.reason, error.message)
        except InstepError as error:
            said = self._unable(error)
        except Exception:  # noqa: BLE001 - whoever waits is answered
            _log.exception("a message could not be read for a reason of our own")
            said = Answer(500, "internal", "it could not be read")
        answer(said)

    async def _receive(self, incoming: Incoming) -> Answer:
        reception = self._reception
        assert reception is not None
        for kind in incoming.deviations:
            reception.deviated(kind)
        if incoming.message is not None:
            receipt = await reception.receive(incoming.message)
            if receipt.outcome is ReceiptOutcome.REFUSED:
                return self._not_received(receipt)
        self._remember(incoming.headers)
        await self._heed(incoming.headers, reception)
        return _TAKEN

    def _not_received(self, receipt: Receipt) -> Answer:
        refusal = receipt.refusal or Refusal.UNPROCESSABLE
        return self._refusal(status_of(refusal), refusal, f"the sequence: {refusal!s}")

    def _unable(self, error: InstepError) -> Answer:
        _log.debug("a message cannot be taken now: %s", error)
        return self._refusal(503, error.code, "it cannot be kept now")

    def _refusal(self, status: int, code: str, detail: str) -> Answer:
        self.refused[code] += 1
        # One of each kind is told; a hostile sender must not fill the log.
        level = logging.WARNING if self.refused[code] == 1 else logging.DEBUG
        _log.log(level, "a message is refused: %s: %s", code, detail)
        return Answer(status, code, detail, _RETRY_AFTER_S if status == 503 else 0)

    def _remember(self, headers: Headers) -> None:
        """Who takes part in a thread, and who asks what we have."""
        if not headers.sender:
            return
        if headers.sender_order:
            parties = self._parties.setdefault(headers.thid, {})
            self._parties.move_to_end(headers.thid)
            if len(parties) < _MOST_PARTIES:
                parties[headers.sender] = None
            if len(self._parties) > _MOST_THREADS:
                self._parties.popitem(last=False)
        if headers.please_ack and self._sender is not None and len(self._asked) < _MOST_ASKED:
            self._asked.add((headers.thid, headers.sender))
            self._wakes.set()

    async def _heed(self, headers: Headers, reception: Reception) -> None:
        """What the sender says of our messages."""
        sender = self._sender
        if sender is not None and headers.sender and headers.received_orders:
            try:
                await sender.reported(headers.thid, headers.sender, headers.received_orders)
            except ReceivedOrdersError as error:
                reception.deviated("received-orders-wrong")
                _log.info("received_orders of %.80s: %s", headers.sender, error)

    async def _tell_who_asked(self, sender: Sender) -> None:
        while True:
            await self._wakes.wait()
            await asyncio.sleep(self._options.ack_delay_s)
            self._wakes.clear()
            asked, self._asked = self._asked, set()
            await asyncio.gather(*(self._tell(sender, thid, peer) for thid, peer in asked))

    async def _tell(self, sender: Sender, thid: str, peer: str) -> None:
        # Whoever was not told sends again, and asks again.
        with suppress(InstepError):
            await sender.tell(thid, peer)

    async def _detectors(self, thid: str, parties: Sequence[str]) -> list[GapDetector]:
        assert self._reception is not None
        detectors = [
            await self._reception.received_orders(sequence_scope(thid, party), party)
            for party in dict.fromkeys([*parties, *self._parties.get(thid, ())])
        ]
        return [detector for detector in detectors if detector.last]


def _nameless() -> SourceError:
    return SourceError(
        "a receiver without a DID cannot send",
        where="didcomm",
        hint='did = "did:…", or secrets_file',
    )
