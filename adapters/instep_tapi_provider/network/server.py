"""The HTTP server of one provider: routes, logins before them, start and stop."""

from collections.abc import Awaitable, Callable
from email.utils import formatdate

from aiohttp import web

from instep.errors import ConfigurationError
from instep_tapi_provider.network import restconf
from instep_tapi_provider.network.auth import Logins, unauthorized
from instep_tapi_provider.network.events import EVENT_STREAM, serve_events
from instep_tapi_provider.network.services import ServiceOrders
from instep_tapi_provider.network.site import RESTCONF_TYPE, Site
from instep_tapi_provider.network.websocket import serve_stream

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_STREAM_PATH = "/data/context/stream-context/available-stream={uuid}"
_SERVICES_PATH = (
    "/data/{context:(tapi-common:)?context}/{container:(tapi-connectivity:)?connectivity-context}"
)
_SERVICE_PATH = "/{list:(tapi-connectivity:)?connectivity-service}={uuid}"
_STOP_TIMEOUT_S = 1.0


class Server:
    """Serves a site. `extra` routes are added without login: the control endpoint."""

    def __init__(self, site: Site, extra: list[web.RouteDef]) -> None:
        self._site = site
        self._extra = extra
        self._runner: web.AppRunner | None = None
        self.logins = Logins(site.settings.auth, site.now)
        self._orders = ServiceOrders(site)
        self.port = site.settings.port

    def _application(self) -> web.Application:
        site = self._site
        root, auth = site.settings.root, site.settings.auth
        application = web.Application()
        routes: list[web.RouteDef] = [
            web.get(root + _STREAM_PATH, self._guarded(self._stream)),
            web.get(root + "/data{path:.*}", self._guarded(self._read)),
            web.post(root + _SERVICES_PATH, self._guarded(self._orders.create)),
            web.delete(root + _SERVICES_PATH + _SERVICE_PATH, self._guarded(self._orders.delete)),
            *self._extra,
        ]
        if root:
            routes.append(web.get(root, self._guarded(self._api)))
        if site.settings.discovery.host_meta:
            routes.append(web.get("/.well-known/host-meta", self._host_meta))
        if auth.client_id or auth.username:
            routes.append(web.post(auth.token_path, self.logins.oauth2))
        if auth.username:
            routes.append(web.post(auth.login_path, self.logins.login))
        application.add_routes(routes)
        application.on_response_prepare.append(self._state_date)
        return application

    async def _state_date(self, _request: web.Request, response: web.StreamResponse) -> None:
        """The provider states its own clock, right or wrong (RFC 9110 6.6.1)."""
        response.headers["Date"] = formatdate(self._site.now(), usegmt=True)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            return unauthorized(self._site, self.logins, request) or await handler(request)

        return guarded

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await serve_stream(self._site, request)
        if EVENT_STREAM in request.headers.get("Accept", ""):
            return await serve_events(self._site, request)
        return restconf.read(self._site, request)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        return restconf.read(self._site, request)

    async def _host_meta(self, _request: web.Request) -> web.StreamResponse:
        return restconf.host_meta(self._site)

    async def _api(self, _request: web.Request) -> web.StreamResponse:
        api = {"data": {}, "operations": {}, "yang-library-version": "2016-06-21"}
        return web.json_response({"ietf-restconf:restconf": api}, content_type=RESTCONF_TYPE)

    async def start(self) -> None:
        """Listen. Raises ConfigurationError when the address cannot be bound."""
        settings = self._site.settings
        runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=_STOP_TIMEOUT_S
        )
        await runner.setup()
        address = web.TCPSite(runner, settings.host, self.port, ssl_context=settings.tls)
        try:
            await address.start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigurationError(
                f"cannot listen: {error.strerror}",
                where=f"{settings.host}:{self.port}",
                hint="choose another --port, or 0 for a free one",
            ) from error
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Cut all connections and listen no more."""
        await self._orders.close()
        for stream in self._site.streams:
            for listener in list(stream.listeners):
                listener.drop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
