"""A receiver of SOAP messages as a process: the real listener, without a socket."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from instep import Environment, SequencerSettings
from instep.errors import SourceError
from instep.ports import Intake
from instep.sequencing import SequenceEffect
from instep_http import Response
from instep_http.fast_path import PostRequest
from instep_soap import SoapEndpoint
from instep_wsr import Options as WsrOptions
from instep_wsr import WsrListener
from instep_wsrm import Options as WsrmOptions
from instep_wsrm import WsrmListener
from tests.simulation.sequencing.process import Process

if TYPE_CHECKING:
    from tests.simulation.soap.simulation import SoapWorld

__all__ = ["SimulatedWsr", "SimulatedWsrm", "SoapProcess"]


class SoapProcess(Process):
    """One life of the receiver, on what is durable."""

    world: SoapWorld
    opens_implicitly = False

    def __init__(self, world: SoapWorld) -> None:
        environment = Environment(world.now, measure_lag_s=0)
        options = world.options
        self._listener: WsrListener | WsrmListener
        if isinstance(options, WsrOptions):
            self._listener = WsrListener(options, environment=environment)
        else:
            self._listener = WsrmListener(options, environment=environment)
        super().__init__(world)

    async def post(self, raw: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to an envelope; status 0: nobody listens."""
        endpoint = self._listener._endpoint
        if self.intake is None or not isinstance(endpoint, _Endpoint):
            return 0, b""
        return await endpoint.post(raw)

    def settings_of(self, scope: str) -> SequencerSettings:
        return self._listener.settings_of(scope)

    def peer_of(self, scope: str) -> str:
        return self._listener.peer_of(scope)

    async def serve(self, intake: Intake) -> None:
        self.intake, self.address = intake, "simulated://"
        await self._listener.serve(intake)

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        if self.world.rng.random() < self.world.faults.report_fails_p:
            raise SourceError("made by the simulation")
        await self._listener.carry_out(scope, effect)
        self.world.sent.add((scope, msgspec.json.encode(effect).decode()))


class _Endpoint(SoapEndpoint):
    """Answers without a server."""

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def post(self, raw: bytes) -> tuple[int, bytes]:
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def respond(response: Response) -> None:
            if not answered.done():
                answered.set_result(response)

        self._on_post(PostRequest(raw, "/", "application/soap+xml", "192.0.2.1"), respond)
        found = await answered
        return found.status, found.body


class SimulatedWsr(WsrOptions, frozen=True, kw_only=True):
    """The options of a `wsr` source without a socket."""

    endpoint_class = _Endpoint

    def client_tls(self, where: str) -> ssl.SSLContext:  # noqa: ARG002 - nothing is sent
        return _tls()


class SimulatedWsrm(WsrmOptions, frozen=True, kw_only=True):
    """The options of a `wsrm` source without a socket."""

    endpoint_class = _Endpoint

    def client_tls(self, where: str) -> ssl.SSLContext:  # noqa: ARG002 - nothing is sent
        return _tls()


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
