"""The port on which a process says how it does: probes, metrics, and all figures as JSON.

It only reads. Health is read in the event loop, which owns it; text is made of it in a thread, so
that a scrape of many streams holds nothing up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec
from aiohttp import web

from instep.errors import ConfigurationError
from instep.metrics.figures import facts_of
from instep.metrics.page import CONTENT_SECURITY_POLICY, page_of
from instep.metrics.readiness import ReadinessRole, faults_of
from instep.metrics.text import CONTENT_TYPE, text_of
from instep.model.listen import parse_listen
from instep.runtime.health import Health

__all__ = ["OperationsPort"]

_MOST_REQUESTS: Final = 16
"""Most requests that are answered at once; further ones get 503."""
_LIVE_WITHIN_S: Final = 5.0


class SupportsHealth(Protocol):
    """What is asked how it does: a consumer, or what else works in the process."""

    def health(self) -> Health:
        """Its health now. Never waits."""


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OperationsPort:
    """Serves from `__aenter__` to `__aexit__`.

    Promised: `/livez` fails only where the process does not move, never because of a provider or a
    database; `/readyz` says 200 only while each consumer is in step or stands by, and else 503 with
    a line for each reason, which begins with who has to act.
    """

    def __init__(
        self,
        consumers: Callable[[], Sequence[SupportsHealth]],
        listen: str,
        where: str,
        *,
        about: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`consumers` are asked for at each request: they may change. `listen` is as in
        `parse_listen`, port 0 for a free one, and `where` its place in the configuration. `about`
        adds to `/status.json` what there is to say of the process.
        """
        self._consumers = consumers
        self._about = about
        self._host, self._port = parse_listen(listen, where)
        self._where = where
        self._started: set[str] = set()
        """Consumers that were ready once."""
        self._runner: web.AppRunner | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._requests = 0

    def __repr__(self) -> str:
        return f"<OperationsPort {self.address or 'closed'}>"

    @property
    def address(self) -> str:
        """Its URL, with the actual port; empty while it is closed."""
        if self._runner is None or not self._runner.addresses:
            return ""
        host, port = self._runner.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def __aenter__(self) -> Self:
        """Listen. Raises `ConfigurationError` where that is not possible."""
        app = web.Application(middlewares=[self._bounded])
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/startupz", self._startup),
                web.get("/metrics", self._metrics),
                web.get("/status.json", self._status),
            ]
        )
        self._thread = ThreadPoolExecutor(1, "instep operations")
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.__aexit__(None, None, None)
            raise ConfigurationError(
                f"cannot listen on {self._host}, port {self._port}: {error.strerror}",
                where=self._where,
                hint="choose another port, or end what listens there",
                key="listen",
            ) from error
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    # -- pages -----------------------------------------------------------------------------------

    @web.middleware
    async def _bounded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self._requests >= _MOST_REQUESTS:
            return _text("too many requests at once", 503)
        self._requests += 1
        try:
            response = await handler(request)
        finally:
            self._requests -= 1
        response.headers["Cache-Control"] = "no-store"
        return response

    async def _live(self, _request: web.Request) -> web.Response:
        """That this runs shows that the event loop moves; that a thread gets its turn, that the
        interpreter does.
        """
        try:
            async with asyncio.timeout(_LIVE_WITHIN_S):
                await self._in_thread(lambda: b"")
        except TimeoutError:
            return _text("no thread gets its turn", 503)
        return _text("live")

    async def _ready(self, request: web.Request) -> web.Response:
        role = request.query.get("role", ReadinessRole.WRITER)
        if role not in tuple(ReadinessRole):
            return _text(f"role is {' or '.join(ReadinessRole)}", 400)
        # A probe that is mistyped must not pass as another.
        if not request.query.keys() <= {"role", "consumer"}:
            return _text("a query is role=ROLE or consumer=NAME, which may be repeated", 400)
        healths = await self._healths()
        if "consumer" in request.query:
            names = set(request.query.getall("consumer"))
            healths = [one for one in healths if one.consumer in names]
            if len(healths) < len(names):
                return _text("there is no such consumer", 404)
        faults = faults_of(healths, ReadinessRole(role))
        if not faults:
            return _text("ready")
        return _text("\n".join(["not ready", *map(str, faults)]), 503)

    async def _startup(self, _request: web.Request) -> web.Response:
        healths = await self._healths()
        waits = [one.consumer for one in healths if one.consumer not in self._started]
        if not waits:
            return _text("started")
        return _text("\n".join(["not in step yet", *waits]), 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = await self._in_thread(partial(text_of, await self._healths()))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _status(self, _request: web.Request) -> web.Response:
        told = partial(_told, await self._healths(), self._about())
        encode = msgspec.json.encode
        body = await self._in_thread(lambda: encode(told()))
        return web.Response(body=body, content_type="application/json")

    async def _page(self, _request: web.Request) -> web.Response:
        told = partial(_told, await self._healths(), self._about())
        body = await self._in_thread(lambda: page_of(told()))
        return web.Response(
            body=body,
            headers={
                "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": CONTENT_SECURITY_POLICY,
                "X-Content-Type-Options": "nosniff",
            },
        )

    # -- inner parts -----------------------------------------------------------------------------

    async def _healths(self) -> list[Health]:
        healths: list[Health] = []
        for one in self._consumers():
            healths.append(one.health())
            # What is due comes between two of many consumers.
            await asyncio.sleep(0)
        waiting = [one for one in healths if one.consumer not in self._started]
        self._started |= {one.consumer for one in waiting if not faults_of([one])}
        return healths

    async def _in_thread(self, write: Callable[[], bytes]) -> bytes:
        # One of its own: that of the loop may be waiting for a database.
        return await asyncio.get_running_loop().run_in_executor(self._thread, write)


def _told(healths: Sequence[Health], about: dict[str, Any]) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    consumers = [facts_of(one) for one in healths]
    ready = all(one["ready"] for one in consumers)
    return {"at": at, "ready": ready, **about, "consumers": consumers}


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=f"{text}\n", status=status)
