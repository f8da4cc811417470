"""The control endpoint ``/_instep/``: lets a test in another process see the truth and cause trouble.

It has no login, so it is off unless asked for. Bodies are JSON; an error is {"error": text} with 400.

    GET  entities           JSON lines: stream, stream_id, key, class, token, appended_at, body
    GET  counters           per stream-id: connections, records_sent, resumes_by_token …
    GET  faults             the faults as they are
    POST faults             {name: value, …}
    POST drop               {"stream": id}?                     cut connections
    POST forget             {"stream": id}?                     lose the log
    POST pause, activate    {"stream": id}
    POST lose, recover      {"stream": id}                      ST-1.2
    POST storm              {"changes_per_s": n, "keys": n?}    start; n = 0 stops
    POST create             {"parent": key?, "path": members, "value": object}
    POST update             {"key": key, "changes": object}
    POST delete             {"key": key}
    POST raise              {"key": key, "condition": name?, "severity": text?, "detector": n?}
    POST clear              {"key": key, "tombstone_only": bool?}
    POST revoke             make all logins invalid
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from instep.errors import ConfigurationError
from instep_tapi.provider.clock import rfc3339

if TYPE_CHECKING:
    from instep_tapi.provider.provider import Provider

Body = dict[str, Any]
_CHUNK_RECORDS = 1000


def control_routes(provider: "Provider") -> list[web.RouteDef]:
    """The routes of the control endpoint of one provider."""

    async def storm(body: Body) -> Any:
        if body["changes_per_s"]:
            return await provider.start_storm(body["changes_per_s"], body.get("keys"))
        return await provider.stop_storm()

    async def drop(body: Body) -> Any:
        return {"dropped": provider.drop_clients(body.get("stream"))}

    async def forget(body: Body) -> Any:
        return provider.forget_log(body.get("stream"))

    async def pause(body: Body) -> Any:
        return provider.pause(body["stream"])

    async def activate(body: Body) -> Any:
        return provider.activate(body["stream"])

    async def lose(body: Body) -> Any:
        return provider.lose_changes(body["stream"])

    async def recover(body: Body) -> Any:
        return {"repaired": provider.recover(body["stream"])}

    async def create(body: Body) -> Any:
        return {"keys": provider.create(body.get("parent"), body["path"], body["value"])}

    async def update(body: Body) -> Any:
        return provider.update(body["key"], body["changes"])

    async def delete(body: Body) -> Any:
        return {"keys": provider.delete(body["key"])}

    async def raise_(body: Body) -> Any:
        known = {name: body[name] for name in ("severity", "detector") if name in body}
        return {"key": provider.raise_alarm(body["key"], body.get("condition"), **known)}

    async def clear(body: Body) -> Any:
        only = bool(body.get("tombstone_only"))
        return provider.clear_alarm(body["key"], tombstone_only=only)

    async def faults(body: Body) -> Any:
        provider.set_faults(**body)
        return asdict(provider.faults)

    async def revoke(_body: Body) -> Any:
        return provider.revoke_tokens()

    async def get_faults(_request: web.Request) -> web.Response:
        return web.json_response(asdict(provider.faults))

    async def get_counters(_request: web.Request) -> web.Response:
        return web.json_response({s.stream_id: asdict(s.counters) for s in provider.streams})

    async def get_entities(request: web.Request) -> web.StreamResponse:
        return await _entities(provider, request)

    commands: dict[str, Callable[[Body], Awaitable[Any]]] = {
        "storm": storm,
        "drop": drop,
        "forget": forget,
        "pause": pause,
        "activate": activate,
        "lose": lose,
        "recover": recover,
        "create": create,
        "update": update,
        "delete": delete,
        "raise": raise_,
        "clear": clear,
        "faults": faults,
        "revoke": revoke,
    }
    return [
        web.get("/_instep/entities", get_entities),
        web.get("/_instep/counters", get_counters),
        web.get("/_instep/faults", get_faults),
        *(web.post(f"/_instep/{name}", _command(run)) for name, run in commands.items()),
    ]


def _command(
    run: Callable[[Body], Awaitable[Any]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.json() if request.can_read_body else {}
            if not isinstance(body, dict):
                raise ConfigurationError("the body must be a JSON object")
            result = await run(body)
        except KeyError as error:
            return web.json_response({"error": f"the body needs {error}"}, status=400)
        except (ConfigurationError, json.JSONDecodeError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(result if result is not None else {})

    return handle


async def _entities(provider: "Provider", request: web.Request) -> web.StreamResponse:
    """The truth, one entity a line, in the order of the last change."""
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(request)
    for stream in provider.streams:
        keys = stream.keys_by_last_change()
        for first in range(0, len(keys), _CHUNK_RECORDS):
            lines = []
            for key in keys[first : first + _CHUNK_RECORDS]:
                statement = stream.entities.get(key)
                if statement is None or statement.record is None:
                    continue
                line = {
                    "stream": stream.uuid,
                    "stream_id": stream.stream_id,
                    "key": key,
                    "class": statement.cls,
                    "token": statement.record.token,
                    "appended_at": rfc3339(statement.record.appended_s),
                    "body": msgspec.Raw(statement.body),
                }
                lines.append(msgspec.json.encode(line))
            await response.write(b"\n".join([*lines, b""]))
    return response
