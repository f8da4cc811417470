"""The duties of a sender of Advanced Sequencing, judged by its messages and our answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from instep.conformance import (
    Event,
    RequestAnswered,
    RequestReceived,
    ResendRequested,
    RuleBook,
    UnjudgedClause,
)
from instep.conformance.senders import (
    MessageRefused,
    MessageSent,
    NumbersRequested,
    RequestChecked,
    SenderObserver,
    SenderRule,
    Step,
    sender_rules,
)
from instep.model.messages import CONTENT_BYTES
from instep_didcomm.problems import MessageRefusedError
from instep_didcomm.wire.headers import digest_of, read_headers

__all__ = ["didcomm_rules"]

_read: Final = msgspec.json.Decoder(dict[str, Any]).decode
_NAMED: Final = "sender-named"
_FINAL: Final = frozenset({"409", "410"})


class _SenderObserver(SenderObserver):
    """Reads plaintexts. Nobody closes a thread."""

    closes = False

    def steps(self, event: Event) -> Iterator[tuple[Step, bytes]]:
        """See `SenderObserver`."""
        match event:
            case RequestReceived():
                for step in _read_message(event.content):
                    yield step, event.content
            case RequestAnswered() if event.number is not None and not event.confirmed:
                final = event.reason in _FINAL
                yield MessageRefused(event.session, event.number, final), event.content
            case ResendRequested():
                yield NumbersRequested(event.session, event.ranges), b""
            case _:
                pass


def _read_message(content: bytes) -> Iterator[Step]:
    deviations: list[str] = []
    try:
        message = _read(content)
        headers = read_headers(message, deviations.append)
    except (msgspec.MsgspecError, MessageRefusedError) as error:
        yield RequestChecked("well-formed", str(error))
        return
    # That an id is long is no more than a recommendation broken.
    wrong = [kind for kind in deviations if kind != "id-long"]
    wrong += [
        f"received_orders of {one.id} has gaps that are not below its last"
        for one in headers.received_orders
        if any(not 1 <= gap < one.last for gap in one.gaps)
    ]
    yield RequestChecked("well-formed", ", ".join(wrong))
    if not headers.sender_order:
        return
    reason = "" if headers.sender else f"order {headers.sender_order} of nobody"
    yield RequestChecked(_NAMED, reason)
    if not headers.sender:
        return
    digest = digest_of(message)
    yield MessageSent(
        sequence=f"{headers.thid} {headers.sender}",
        number=headers.sender_order,
        id=headers.id,
        content=digest[:CONTENT_BYTES].hex(),
        headers=digest.hex(),
        copies=headers.sent_count,
    )


_ROWS: Final = (
    SenderRule(
        duty="well-formed",
        text="The headers are as DIDComm Messaging and Advanced Sequencing have them.",
        clause="DIDComm 2.1, Message Headers",
        provoke="Let the sender send anything.",
        why="What cannot be read is refused, and its order stays missing.",
        right='"sender_order": 3',
        wrong='"custom_headers": {"sender_order": 3}',
    ),
    SenderRule(
        duty=_NAMED,
        text="A message with a sender_order has a `from`.",
        clause="Advanced Sequencing, sender_order",
        provoke="Let the sender send a message of a sequenced protocol.",
        why="Orders count for each thread and sender: without one nobody can count.",
        right='"from": "did:example:alice", "sender_order": 1',
        wrong='"sender_order": 1',
    ),
    SenderRule(
        duty="ids-unique",
        text="No two messages have one id.",
        clause="DIDComm 2.1, Message Headers (id)",
        provoke="Let the sender send two messages.",
        why="Threads, acknowledgements and problem reports refer to a message by its id.",
        right='"id": "a", "sender_order": 1; "id": "b", "sender_order": 2',
        wrong='"id": "a", "sender_order": 1; "id": "a", "sender_order": 2',
    ),
    SenderRule(
        duty="content-repeated",
        text="A message that is sent again has the same id and body.",
        clause="Advanced Sequencing, sent_count",
        provoke="Lose the answer to a message, so that it is sent again.",
        why="A recipient that has the first content ignores the second: it is lost.",
        right="order 3 twice, with one id and body",
        wrong="order 3 twice, with another body",
    ),
    SenderRule(
        duty="headers-repeated",
        text="A message that is sent again has the same headers, but for sent_count.",
        clause="Advanced Sequencing, sent_count",
        should=True,
        provoke="Lose the answer to a message, so that it is sent again.",
        why="Two copies that differ may be taken for two messages.",
        right='"created_time" as at first',
        wrong='"created_time" of now',
    ),
    SenderRule(
        duty="copies-counted",
        text="sent_count grows by 1 each time that a message is sent again.",
        clause="Advanced Sequencing, sent_count",
        provoke="Lose the answer to a message, so that it is sent again.",
        why="By it a recipient tells a loss on the way from one of its own.",
        right='"sent_count": 2',
        wrong='"sent_count": 1, for the second time',
    ),
    SenderRule(
        duty="sent-again",
        text="What received_orders shows to be missing is sent again within 30 s.",
        clause="Advanced Sequencing, received_orders",
        should=True,
        provoke="Lose a message, with a DID of our own so that we can ask.",
        why="All behind a message that never comes wait, until the gap is given up.",
        right="gap 2; then order 2",
        wrong="gap 2; order 2 never comes",
    ),
    SenderRule(
        duty="gives-up",
        text="A message that was refused for good (409, 410) is not sent again.",
        clause="RFC 9110, 15.5.11",
        should=True,
        provoke="Send a message after its thread has failed.",
        why="It costs both sides, and never succeeds.",
        right="410; a new thread",
        wrong="410; the same message again and again",
    ),
)


_UNJUDGED: Final = (
    UnjudgedClause(
        "Advanced Sequencing, sender_order",
        "Orders begin at 1 and grow by 1 with each message of a sender in a thread.",
        "An order that never comes may have been lost on its way. Where its sender is asked for it"
        " and does not send it, `didcomm-sent-again` names it.",
    ),
    UnjudgedClause(
        "Advanced Sequencing, sent_count",
        "The first sending of a message is number 1.",
        "A first copy with a higher count comes where the ones before it were lost.",
    ),
    UnjudgedClause(
        "Advanced Sequencing, sent_count",
        "A recipient ignores all copies but the first.",
        "It is the duty of a recipient: what a peer ignores does not show.",
    ),
    UnjudgedClause(
        "Advanced Sequencing, received_orders",
        "`last` and `gaps` are what the sender has received of each party.",
        "What was sent to it by others is not in the trace; its form is judged by"
        " `didcomm-well-formed`.",
    ),
    UnjudgedClause(
        "Advanced Sequencing, reference",
        "The definition of a protocol declares which of the headers it uses.",
        "It is a document, not a message.",
    ),
    UnjudgedClause(
        "DIDComm 2.1, message packing",
        "typ, apv, skid and kid of an envelope are as they are specified.",
        "A trace has what was proven and decrypted; what cannot be proven is refused, and counted.",
    ),
)


def didcomm_rules() -> RuleBook:
    """The rules of a sender of numbered messages."""
    return sender_rules(
        "didcomm", "Senders of DIDComm, Advanced Sequencing", _ROWS, _SenderObserver, _UNJUDGED
    )
