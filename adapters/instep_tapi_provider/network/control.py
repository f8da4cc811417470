"""The control endpoint ``/_instep/``: lets a test in another process read the true state and
cause faults.

It has no login, so it is off unless asked for. Bodies are JSON; a wrong one is answered by 400 and
{"error": text}.

    GET  entities           JSON lines: stream and stream_id (the same), key, class, token,
                            appended_at, body
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
    POST inform             {"stream": id, "key": text, "facts": {name: text}}      v3.2 3.10
    POST revoke             make all logins invalid
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import msgspec
from aiohttp import web

from instep.errors import ConfigurationError
from instep_tapi_provider.clock import rfc3339
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.stream import Stream

Body = dict[str, Any]
_CHUNK_RECORDS = 1000


class ControllableProvider(Protocol):
    """What the endpoint shows and does: the part of `Provider` that it needs.

    Methods that name a stream or a key raise ConfigurationError for one that does not exist.
    """

    @property
    def streams(self) -> Sequence[Stream]: ...
    @property
    def faults(self) -> Faults: ...
    def set_faults(self, **values: Any) -> None: ...
    async def start_storm(self, changes_per_s: float, keys: int | None = None) -> None: ...
    async def stop_storm(self) -> None: ...
    def drop_clients(self, stream: str | None = None) -> int: ...
    def forget_log(self, stream: str | None = None) -> None: ...
    def pause(self, stream: str) -> None: ...
    def activate(self, stream: str) -> None: ...
    def lose_changes(self, stream: str) -> None: ...
    def recover(self, stream: str) -> int: ...
    def create(self, parent_key: str | None, path: str, value: dict[str, Any]) -> list[str]: ...
    def update(self, key: str, changes: Mapping[str, Any]) -> None: ...
    def delete(self, key: str) -> list[str]: ...
    def raise_alarm(
        self,
        measured_key: str,
        condition: str | None = None,
        *,
        severity: str = "",
        detector: int = 0,
    ) -> str: ...
    def clear_alarm(self, key: str, *, tombstone_only: bool = False) -> None: ...
    def inform(self, stream: str, key: str, facts: Mapping[str, str]) -> None: ...
    def revoke_tokens(self) -> None: ...


def control_routes(provider: ControllableProvider) -> list[web.RouteDef]:
    """The routes of the control endpoint of one provider."""
    commands = Commands(provider)

    async def entities(request: web.Request) -> web.StreamResponse:
        return await _entities(provider, request)

    async def counters(_request: web.Request) -> web.Response:
        return web.json_response({s.stream_id: asdict(s.counters) for s in provider.streams})

    async def faults(_request: web.Request) -> web.Response:
        return web.json_response(asdict(provider.faults))

    async def command(request: web.Request) -> web.Response:
        run = getattr(commands, f"do_{request.match_info['command']}", None)
        if run is None:
            return web.json_response({"error": "no such command"}, status=404)
        return await _answer(run, request)

    return [
        web.get("/_instep/entities", entities),
        web.get("/_instep/counters", counters),
        web.get("/_instep/faults", faults),
        web.post("/_instep/{command}", command),
    ]


async def _answer(run: Callable[[Body], Any], request: web.Request) -> web.Response:
    try:
        body = await request.json() if request.can_read_body else {}
        if not isinstance(body, dict):
            return web.json_response({"error": "the body must be a JSON object"}, status=400)
        result = run(body)
        if inspect.isawaitable(result):
            result = await result
    except KeyError as error:
        return web.json_response({"error": f"the body needs {error}"}, status=400)
    except (ConfigurationError, TypeError, ValueError) as error:
        return web.json_response({"error": str(error)}, status=400)
    return web.json_response(result or {})


class Commands:
    """One method for each POST; what it returns is the answer."""

    def __init__(self, provider: ControllableProvider) -> None:
        self._provider = provider

    async def do_storm(self, body: Body) -> None:
        if body["changes_per_s"]:
            await self._provider.start_storm(body["changes_per_s"], body.get("keys"))
        else:
            await self._provider.stop_storm()

    def do_faults(self, body: Body) -> Body:
        self._provider.set_faults(**body)
        return asdict(self._provider.faults)

    def do_drop(self, body: Body) -> Body:
        return {"dropped": self._provider.drop_clients(body.get("stream"))}

    def do_forget(self, body: Body) -> None:
        self._provider.forget_log(body.get("stream"))

    def do_pause(self, body: Body) -> None:
        self._provider.pause(body["stream"])

    def do_activate(self, body: Body) -> None:
        self._provider.activate(body["stream"])

    def do_lose(self, body: Body) -> None:
        self._provider.lose_changes(body["stream"])

    def do_recover(self, body: Body) -> Body:
        return {"repaired": self._provider.recover(body["stream"])}

    def do_create(self, body: Body) -> Body:
        return {"keys": self._provider.create(body.get("parent"), body["path"], body["value"])}

    def do_update(self, body: Body) -> None:
        self._provider.update(body["key"], body["changes"])

    def do_delete(self, body: Body) -> Body:
        return {"keys": self._provider.delete(body["key"])}

    def do_raise(self, body: Body) -> Body:
        known = {name: body[name] for name in ("severity", "detector") if name in body}
        return {"key": self._provider.raise_alarm(body["key"], body.get("condition"), **known)}

    def do_clear(self, body: Body) -> None:
        only = bool(body.get("tombstone_only"))
        self._provider.clear_alarm(body["key"], tombstone_only=only)

    def do_inform(self, body: Body) -> None:
        facts = {name: str(value) for name, value in dict(body["facts"]).items()}
        self._provider.inform(body["stream"], body["key"], facts)

    def do_revoke(self, _body: Body) -> None:
        self._provider.revoke_tokens()


async def _entities(provider: ControllableProvider, request: web.Request) -> web.StreamResponse:
    """The true state, one entity a line, in the order of the last change."""
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    # Who asked may hang up before the end.
    with contextlib.suppress(ConnectionResetError):
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
                        "stream": stream.stream_id,
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
