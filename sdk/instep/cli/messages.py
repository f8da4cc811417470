"""`instep messages`: the messages of numbered sequences that were delivered to the store."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    Listing,
    json_line,
    moment,
    one_line,
    stamp,
)
from instep.cli.store import StoreOption, StreamOption, open_reader, require_stream
from instep.model.messages import StoredMessage

__all__ = ["messages"]

_BODY_SHOWN_BYTES: Final = 400
"""Bytes of a body that are read for the table, whose column shows fewer."""


def messages(
    store: StoreOption, stream: StreamOption = None, output: FormatOption = Format.TABLE
) -> None:
    """List the delivered messages of numbered sequences, in the order of delivery.

    A stream is one sequence. A body that is JSON is shown as it is, other text as a string, and
    what is no text as {"base64": …}.
    """
    asyncio.run(_list(store, stream, output))


async def _list(store: str, stream: str | None, output: Format) -> None:
    async with open_reader(store) as reader:
        found = reader.messages(stream=stream)
        await require_stream(reader, stream)
        if output is Format.JSONL:
            async for message in found:
                json_line(_line(message))
            return
        console = Console(highlight=False)
        columns = [Column("Stream", ratio=3), Column("Number", width=8, justify="right")]
        columns += [Column("ID", ratio=3), Column("Delivered", width=MOMENT_WIDTH)]
        columns += [Column("Body", ratio=5)]
        listing = Listing(console, columns)
        async for message in found:
            listing.add(
                message.stream,
                "—" if message.number < 0 else str(message.number),
                message.id,
                moment(message.delivered_at_us),
                message.body[:_BODY_SHOWN_BYTES].decode(errors="replace"),
            )
        listing.flush()
        console.print(f"{listing.rows:,} messages")


def _line(message: StoredMessage) -> dict[str, Any]:
    return {
        "stream": message.stream,
        "number": None if message.number < 0 else message.number,
        "id": message.id,
        "received_at": stamp(message.received_at_us),
        "delivered_at": stamp(message.delivered_at_us),
        "body": _body(message.body),
    }


def _body(body: bytes) -> Any:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(body).decode()}
    return one_line(body)
