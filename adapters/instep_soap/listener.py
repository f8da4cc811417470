"""What the listeners of the SOAP protocols share: options, certificates, endpoint, address."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from instep.conformance import Event, MeteredRecorder
from instep.errors import SourceError
from instep.ports.listener import Intake
from instep.runtime.retry import Environment
from instep.sequencing.effects import SequenceEffect
from instep.sequencing.settings import SequencerSettings
from instep_soap.allowed_endpoints import AllowedEndpoints
from instep_soap.endpoint import SoapEndpoint
from instep_soap.exchange_recorder import ExchangeRecorder
from instep_soap.options import SoapOptions
from instep_soap.receiver import SoapReceiver

__all__ = ["SoapListener"]

OptionsT = TypeVar("OptionsT", bound=SoapOptions)


class SoapListener(ABC, Generic[OptionsT]):
    """Listens for envelopes of numbered messages; `instep.ports.listener.Listener`. Raises
    `ConfigurationError`.

    Args:
        options: See `read_options` of the adapter.
        where: The place of the options in the configuration, for errors; empty: the kind.
        fast_path: Whether the usual messages take a shorter way; the responses are the same.
    """

    kind: ClassVar[str]
    addressed: ClassVar[bool] = True
    """Whether faults have the headers of WS-Addressing."""
    reported: ClassVar[tuple[type[SequenceEffect], ...]]
    """The effects that a peer is told of by an envelope of our own, where it stated an address. Any
    other peer learns them from the answer to its next envelope.
    """
    opens_implicitly = False

    def __init__(
        self,
        options: OptionsT,
        where: str = "",
        environment: Environment | None = None,
        *,
        fast_path: bool = True,
    ) -> None:
        self._options = options
        self._environment = environment or Environment()
        self._fast_path = fast_path
        self._server_tls = options.server_tls(where or self.kind)
        self._client_tls = options.client_tls(where or self.kind)
        self._recorder: MeteredRecorder | None = None
        self._endpoint: SoapEndpoint | None = None
        self._receiver: SoapReceiver[Any] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address or self._options.listen}>"

    @property
    def address(self) -> str:
        """The URL that it listens on, with the real port; empty while it does not listen."""
        return self._endpoint.address if self._endpoint is not None else ""

    @staticmethod
    @abstractmethod
    def read_options(options: Mapping[str, Any], where: str) -> Any:
        """Read a table of options; see the adapter."""

    def record(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        """See `Recordable`: each envelope and its answer, from the next `serve` on."""
        self._recorder = MeteredRecorder(recorder, room, self._now_us)

    @abstractmethod
    def settings_of(self, scope: str) -> SequencerSettings:
        """See `Listener`."""

    @abstractmethod
    def peer_of(self, scope: str) -> str:
        """See `Listener`."""

    @abstractmethod
    def new_receiver(self, intake: Intake, endpoints: AllowedEndpoints) -> SoapReceiver[Any]:
        """The receiver of one `serve`; `endpoints` sends to addresses that peers state."""

    def reconfigure(self, options: Mapping[str, Any], where: str) -> Collection[str]:
        """See `ReconfigurableListener`: the bounds of its server."""
        self._options, left = self._options.with_limits_of(self.read_options(options, where))
        if self._endpoint is not None:
            self._endpoint.reconfigure(self._options.limits())
        return left

    async def serve(self, intake: Intake) -> None:
        options = self._options
        endpoints = options.allowed_endpoints(self._client_tls)
        receiver = self.new_receiver(intake, endpoints)
        endpoint = options.endpoint(
            receiver.answer,
            self._server_tls,
            addressed=self.addressed,
            usual=receiver,
            fast_path=self._fast_path,
        )
        if self._recorder is not None:
            endpoint.recorder = ExchangeRecorder(self._recorder, self._now_us)
        self._endpoint, self._receiver = endpoint, receiver
        intake.show_refusals(endpoint.server_refused)
        try:
            await endpoint.start()
            await receiver.run()
        finally:
            self._receiver = None
            await endpoint.stop()
            await endpoints.close()

    def _now_us(self) -> int:
        return int(self._environment.now() * 1e6)

    async def carry_out(self, scope: str, effect: SequenceEffect) -> bool:
        """See `Listener`; `reported` names what it does."""
        if not isinstance(effect, self.reported):
            return False
        if self._receiver is None:
            raise SourceError("it does not listen", where=self._options.listen)
        return await self._receiver.report(scope, effect)

    async def close(self) -> None:
        """Stop listening. Safe to call again."""
        if self._endpoint is not None:
            await self._endpoint.stop()
