"""`instep messages`: the messages of numbered sequences that were delivered to the store."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    moment,
    one_line,
    print_listing,
    stamp,
)
from instep.cli.store import (
    ConfigArgument,
    ConsumerOption,
    LimitOption,
    StoreOption,
    StreamOption,
    open_stores,
    require_stream,
)
from instep.model.messages import StoredMessage
from instep.ports.reader import MessageReader

__all__ = ["messages", "shown_body"]

_BODY_SHOWN_BYTES: Final = 400
"""Bytes of a body that are read for the table, whose column shows fewer."""


async def messages(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the delivered messages of numbered sequences, in the order of delivery. `instep messages
    dead` is about those that are not delivered.

    A stream is one sequence. A body that is JSON is shown as it is, other text as a string, and
    what is no text as {"base64": …}.

    Example: instep messages --store sqlite:///inbox.db --limit 20
    """
    console = Console(highlight=False)
    columns = [Column("Stream", ratio=3, overflow="fold")]
    columns += [Column("Number", width=8, justify="right")]
    columns += [Column("ID", ratio=3, overflow="fold")]
    columns += [Column("Delivered", width=MOMENT_WIDTH), Column("Body", ratio=4)]
    await print_listing(
        _found(config, store, consumer, stream),
        console,
        columns,
        cells=_cells,
        facts=_line,
        what="messages",
        limit=limit,
        output=output,
    )


async def _found(
    config: Path | None, store: str | None, consumer: str | None, stream: str | None
) -> AsyncGenerator[StoredMessage, None]:
    async with open_stores(config, store, consumer, "messages") as places:
        for place in places:
            for name in place.names:
                found = MessageReader.of(place.reader).messages(consumer=name, stream=stream)
                await require_stream(place.reader, stream)
                async for message in found:
                    yield message


def _cells(message: StoredMessage) -> list[str]:
    return [
        f"{message.consumer} / {message.stream}",
        "—" if message.number < 0 else str(message.number),
        message.id,
        moment(message.delivered_at_us),
        message.body[:_BODY_SHOWN_BYTES].decode(errors="replace"),
    ]


def _line(message: StoredMessage) -> dict[str, Any]:
    return {
        "consumer": message.consumer,
        "stream": message.stream,
        "number": None if message.number < 0 else message.number,
        "message_id": message.id,
        "sender": message.sender,
        "received_at": stamp(message.received_at_us),
        "delivered_at": stamp(message.delivered_at_us),
        "attributes": one_line(message.attributes),
        "body": shown_body(message.body),
        "attachments": message.attachments,
    }


def shown_body(body: bytes) -> Any:
    """A body as JSON has it: as it is, as text, or in base64."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(body).decode()}
    return one_line(body)
