"""A provider of one stream that states just what a test writes, word for word."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any, Self

from aiohttp import WSMsgType, web

__all__ = ["SmallProvider", "stated"]

_BEGAN_S = time.time() - 60.0
_CONTEXT = "tapi-common:context"
_STREAMS = "tapi-streaming:stream-context"


def stated(
    number: int,
    key: str,
    entity_class: str = "",
    entity: dict[str, Any] | None = None,
    kind: str = "CREATE_UPDATE",
    parent: Any = None,
) -> dict[str, Any]:
    """The log-record with this number, for its token, its offset and its second of a minute ago."""
    at = datetime.fromtimestamp(_BEGAN_S + number, UTC).isoformat().replace("+00:00", "Z")
    header = {
        "token": f"t{number}",
        "log-append-time-stamp": at,
        "entity-key": key,
        "record-type": f"RECORD_TYPE_{kind}",
        "full-log-record-offset-id": [
            {"value-name": "partition", "value": "0"},
            {"value-name": "offset", "value": str(number)},
        ],
    }
    if not entity_class:
        return {"log-record-header": header}
    content: dict[str, Any] = {
        "event-time-stamp": {"primary-time-stamp": at},
        "record-content": entity_class,
    }
    if entity is not None:
        content[entity_class.lower().replace("_", "-")] = entity
    if parent is not None:
        content["parent-address"] = parent
    return {"log-record-header": header, "log-record-body": content}


class SmallProvider:
    """Serves `log` to whoever opens the stream, and `context` to whoever asks; both may change."""

    def __init__(
        self, *classes: str, storage: str = "TRUNCATED", records: str = "WHOLE_ENTITY_ON_CHANGE"
    ) -> None:
        self.log: list[dict[str, Any]] = []
        self.context: dict[str, Any] = {}
        self.refuse_latest = False
        self.opened_at: list[str] = []
        self.url = ""
        self._type: dict[str, Any] = {
            "uuid": "type",
            "record-content": list(classes),
            "log-storage-strategy": storage,
            "log-record-strategy": records,
            "record-retention": "60",
        }
        if storage == "COMPACTED":
            self._type["record-retention"] = "FOREVER"
            details = {"tombstone-retention": "240", "compaction-delay": "10"}
            self._type["compacted-log-details"] = details
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/stream", self._serve)
        application.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/restconf/data/").split("/")
        streams = {
            "supported-stream-type": [self._type],
            "available-stream": [
                {
                    "uuid": "u",
                    "stream-id": "s",
                    "stream-state": "ACTIVE",
                    "connection-address": f"ws://{request.host}/stream",
                    "connection-protocol": "WEBSOCKETS",
                    "supported-stream-type": {"supported-stream-type-uuid": "type"},
                }
            ],
        }
        found = {**self.context, _STREAMS: streams}
        if path == [_CONTEXT]:
            return web.json_response({_CONTEXT: self.context})
        if path[0] != _CONTEXT or len(path) > 2 or path[1] not in found:
            return web.Response(status=404)
        return web.json_response({path[1]: found[path[1]]})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        start = request.query.get("start_from", "")
        self.opened_at.append(start or "oldest")
        if start == "latest" and self.refuse_latest:
            return web.Response(status=501)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        tokens = [one["log-record-header"]["token"] for one in self.log]
        sent = len(tokens) if start == "latest" else 0
        if start in tokens:
            sent = tokens.index(start) + 1

        async def send() -> None:
            nonlocal sent
            while True:
                while sent < len(self.log):
                    record, sent = self.log[sent], sent + 1
                    await socket.send_str(json.dumps(record, separators=(",", ":")))
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(send())
        async for message in socket:
            if message.type is WSMsgType.CLOSE:
                break
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return socket
