"""What the provider's tests share: a small network, and a plain client that knows nothing of
instep.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from instep_tapi_provider import Context, Provider, ProviderSettings, RecordStyle, StreamSettings

DEADLINE_S = 10.0


def network(nodes: int = 3, ports: int = 2) -> Context:
    """A context with one topology of so many nodes with so many ports each."""
    return Context(
        {
            "uuid": "ctx",
            "tapi-topology:topology-context": {
                "topology": [
                    {
                        "uuid": "top",
                        "node": [
                            {
                                "uuid": f"n{n}",
                                "name": [{"value-name": "name", "value": f"Node {n}"}],
                                "operational-state": "ENABLED",
                                "owned-node-edge-point": [
                                    {"uuid": f"n{n}p{p}", "operational-state": "ENABLED"}
                                    for p in range(ports)
                                ],
                            }
                            for n in range(nodes)
                        ],
                    }
                ]
            },
        }
    )


def one_stream(style: RecordStyle | None = None, **stream: Any) -> ProviderSettings:
    """A provider with one stream of everything, named `all`."""
    settings = StreamSettings("all", style=style or RecordStyle(), **stream)
    return ProviderSettings(streams=(settings,), compression=False)


async def until(condition: Callable[[], bool], what: str = "condition") -> None:
    """Wait until a condition holds; fail when it does not in time."""
    for _ in range(int(DEADLINE_S / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what} did not come true in {DEADLINE_S} s")


class StreamClient:
    """Reads one stream's frames."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def message(self) -> aiohttp.WSMessage:
        return await asyncio.wait_for(self.ws.receive(), DEADLINE_S)

    async def frame(self) -> Any:
        message = await self.message()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return json.loads(message.data)

    async def records(self, count: int) -> list[dict[str, Any]]:
        """So many bare records."""
        return [await self.frame() for _ in range(count)]

    async def rest(self) -> list[dict[str, Any]]:
        """All records until the provider ends the connection."""
        got = []
        while (message := await self.message()).type is aiohttp.WSMsgType.TEXT:
            got.append(json.loads(message.data))
        return got

    async def silence(self, period_s: float = 0.1) -> None:
        """Nothing comes for a while."""
        try:
            message = await asyncio.wait_for(self.ws.receive(), period_s)
        except TimeoutError:
            return
        raise AssertionError(f"silence was broken by {message}")


@asynccontextmanager
async def connected(
    provider: Provider,
    stream: str = "all",
    start_from: str | None = None,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[StreamClient]:
    """A client of a stream. It does not answer pings, so that only what a test sends is sent."""
    url = stream_url(provider, stream, start_from)
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(url, autoping=False, max_msg_size=0, **options) as ws,
    ):
        yield StreamClient(ws)


def stream_url(provider: Provider, stream: str = "all", start_from: str | None = None) -> URL:
    path = f"/data/context/stream-context/available-stream={provider.stream(stream).uuid}"
    query = f"?start_from={quote(start_from, safe='')}" if start_from is not None else ""
    base = provider.url.replace("http", "ws", 1)
    return URL(f"{base}{provider.settings.root}{path}{query}", encoded=True)


def key(record: dict[str, Any]) -> str:
    return str(record["log-record-header"]["entity-key"])


def kind(record: dict[str, Any]) -> str:
    return str(record["log-record-header"]["record-type"]).removeprefix("RECORD_TYPE_")


def token(record: dict[str, Any]) -> str:
    return str(record["log-record-header"]["token"])


def held(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The entities of a client that applied these records in order."""
    entities: dict[str, Any] = {}
    for record in records:
        if kind(record) == "CREATE_UPDATE":
            body = record["log-record-body"]
            entities[key(record)] = body[list(body)[-1]]
        else:
            entities.pop(key(record), None)
    return entities


def truth(provider: Provider, stream: str = "all") -> dict[str, Any]:
    """The entities that such a client must hold."""
    return {k: json.loads(body) for k, (_, body) in provider.entities(stream).items()}
