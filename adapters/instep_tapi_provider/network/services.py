"""Orders of connectivity-services by RESTCONF (RFC 8040 4.4.1, 4.7; TR-548 ST-5.2, ST-5.3)."""

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from instep_tapi.facts.names import strip_module
from instep_tapi_provider.network.site import Site, restconf_error

_CONTAINER = "tapi-connectivity:connectivity-context"
_MEMBER = "connectivity-service"
_LIST = f"{_CONTAINER}/tapi-connectivity:{_MEMBER}"
_CLASS = "CONNECTIVITY_SERVICE"
_INSTALLED = {"lifecycle-state": "INSTALLED", "operational-state": "ENABLED"}
_PLANNED = {"lifecycle-state": "PLANNED", "operational-state": "DISABLED"}
_ENDING = {"lifecycle-state": "PENDING_REMOVAL"}


class ServiceOrders:
    """Takes orders and carries them out `ProviderSettings.provisioning_s` later. The streams state
    each step.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._works: set[asyncio.Task[None]] = set()

    async def create(self, request: web.Request) -> web.Response:
        """POST of a list with one service to the connectivity-context."""
        if refused := self._refused():
            return refused
        try:
            content = msgspec.json.decode(await request.read()).items()
            (service,) = {strip_module(name): value for name, value in content}[_MEMBER]
            uuid = str(service["uuid"])
        except (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError):
            return restconf_error(400, "malformed-message", "this is no service with a uuid")
        if self._site.faults.forget_services:
            return web.Response(status=201)
        if self._key(uuid) is not None:
            return restconf_error(409, "data-exists", f"there is a service {uuid}")
        (key, *_) = self._site.operator.create(None, _LIST, {**service, **_PLANNED})
        self._later(key, self._install)
        location = f"{request.rel_url.raw_path}/connectivity-service={uuid}"
        status = self._site.faults.answer_services or 201
        return web.Response(status=status, headers={"Location": location})

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE of one service."""
        if refused := self._refused():
            return refused
        if self._site.faults.forget_services:
            return web.Response(status=204)
        key = self._key(request.match_info["uuid"])
        if key is None:
            return restconf_error(404, "invalid-value", "no such service")
        self._site.operator.update(key, _ENDING)
        self._later(key, self._remove)
        return web.Response(status=self._site.faults.answer_services or 204)

    async def close(self) -> None:
        """Carry nothing more out."""
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)

    def _refused(self) -> web.Response | None:
        status = self._site.faults.refuse_services
        if status is None:
            return None
        return restconf_error(status, "operation-failed", "no path between the end points")

    def _key(self, uuid: str) -> str | None:
        nodes = self._site.context.nodes.values()
        return next((one.key for one in nodes if one.cls == _CLASS and one.uuid == uuid), None)

    def _install(self, key: str) -> None:
        if key in self._site.context.nodes:
            self._site.operator.update(key, _INSTALLED)

    def _remove(self, key: str) -> None:
        if key in self._site.context.nodes:
            self._site.operator.delete(key)

    def _later(self, key: str, step: Callable[[str], None]) -> None:
        async def work() -> None:
            await asyncio.sleep(self._site.settings.provisioning_s)
            step(key)

        task = asyncio.create_task(work())
        self._works.add(task)
        task.add_done_callback(self._works.discard)
