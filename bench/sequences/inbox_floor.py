"""The floor of the durable inbox: aiohttp, and one SQLite transaction for what has arrived.

No order, no duplicates, no bad input, no limits: the JSON or the envelope of each message is read.
Messages that arrive while a transaction runs are inserted by the next one, and answered only then:
with an acknowledgement of that one message where the protocol has it in the response.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web
from lxml import etree

from bench.group_commit import GroupCommit, served
from bench.sequences.protocols import RM, SOAP_TYPE, WSR, envelope

__all__ = ["TABLE", "main"]

TABLE: Final = "message"
_SCHEMA: Final = f"""
CREATE TABLE {TABLE} (place INTEGER PRIMARY KEY, thread TEXT NOT NULL, sender TEXT NOT NULL,
                      number INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL);
"""
_INSERT: Final = f"INSERT INTO {TABLE} (thread, sender, number, id, body) VALUES (?, ?, ?, ?, ?)"

Row = tuple[str, str, int, str, bytes]


class _Message(msgspec.Struct, gc=False):
    id: str
    type: str
    thid: str
    sender_order: int
    sender: str = msgspec.field(name="from")


_decoder = msgspec.json.Decoder(_Message)


def _didcomm(raw: bytes) -> Row:
    message = _decoder.decode(raw)
    return message.thid, message.sender, message.sender_order, message.id, raw


def _wsrm(raw: bytes) -> Row | None:
    header = etree.fromstring(raw)[0]
    sequence = header.find(f"{{{RM}}}Sequence")
    if sequence is None:
        return None
    identifier, number = (one.text or "" for one in sequence)
    return identifier, "", int(number), header[1].text or "", raw


def _wsr(raw: bytes) -> Row:
    identified = etree.fromstring(raw)[0].find(f"{{{WSR}}}Request/{{{WSR}}}MessageId")
    assert identified is not None
    group, number = identified.get("groupId", ""), int(identified[0].get("number", ""))
    return group, "", number, f"{group}#{number}", raw


def _accepted(_: Row) -> web.Response:
    return web.Response(status=202)


def _acknowledged(row: Row) -> web.Response:
    scope, _, number, relates_to, _ = row
    header = (
        f'<a:Action s:mustUnderstand="1">{RM}/SequenceAcknowledgement</a:Action>'
        f"<a:RelatesTo>{relates_to}</a:RelatesTo>"
        f"<r:SequenceAcknowledgement><r:Identifier>{scope}</r:Identifier>"
        f'<r:AcknowledgementRange Lower="1" Upper="{number}"/></r:SequenceAcknowledgement>'
    )
    return web.Response(body=envelope(RM, header), content_type=SOAP_TYPE)


def _replied(row: Row) -> web.Response:
    scope, _, number, _, _ = row
    header = (
        f'<r:Response s:mustUnderstand="1"><r:SequenceReplies groupId="{scope}">'
        f'<r:ReplyRange from="0" to="{number}"/></r:SequenceReplies></r:Response>'
    )
    return web.Response(body=envelope(WSR, header), content_type=SOAP_TYPE)


_ANSWERS: Final[dict[str, Callable[[Row], web.Response]]] = {
    "didcomm": _accepted,
    "wsrm": _acknowledged,
    "wsr": _replied,
}
_DECODERS: Final[dict[str, Callable[[bytes], Row | None]]] = {
    "didcomm": _didcomm,
    "wsrm": _wsrm,
    "wsr": _wsr,
}


def _write(db: sqlite3.Connection, rows: list[Row]) -> None:
    db.executemany(_INSERT, rows)


async def _run(store: str, protocol: str) -> None:
    decode, answer = _DECODERS[protocol], _ANSWERS[protocol]
    inbox = GroupCommit(store, _SCHEMA, _write)

    async def take(request: web.BaseRequest) -> web.StreamResponse:
        row = decode(await request.read())
        if row is None:
            return web.Response(status=202)
        await inbox.add([row])
        return answer(row)

    async with served(take, inbox) as port:
        print(port, flush=True)


def main() -> None:
    """Listen on a free port, print it, and receive until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, metavar="FILE")
    parser.add_argument("--protocol", choices=_DECODERS, default="didcomm")
    given = parser.parse_args()
    asyncio.run(_run(given.store, given.protocol))


if __name__ == "__main__":
    main()
