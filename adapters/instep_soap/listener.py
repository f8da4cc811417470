"""What the listeners of the SOAP protocols share: options, certificates, endpoint, address."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from instep.ports.listener import Intake
from instep.runtime.retry import Environment
from instep.sequencing.effects import SequenceEffect
from instep.sequencing.settings import SequencerSettings
from instep_soap.endpoint import SoapEndpoint, SoapHandler, UsualMessages
from instep_soap.options import SoapOptions

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
        self._endpoint: SoapEndpoint | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address or self._options.listen}>"

    @property
    def address(self) -> str:
        """The URL that it listens on, with the real port; empty while it does not listen."""
        return self._endpoint.address if self._endpoint is not None else ""

    @abstractmethod
    def settings_of(self, scope: str) -> SequencerSettings:
        """See `Listener`."""

    @abstractmethod
    def peer_of(self, scope: str) -> str:
        """See `Listener`."""

    @abstractmethod
    async def serve(self, intake: Intake) -> None:
        """See `Listener`."""

    @abstractmethod
    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        """See `Listener`."""

    async def close(self) -> None:
        """Stop listening. Safe to call again."""
        if self._endpoint is not None:
            await self._endpoint.stop()

    def _new_endpoint(
        self, handler: SoapHandler, usual: UsualMessages[Any], *, addressed: bool = True
    ) -> SoapEndpoint:
        """The endpoint of one `serve`, which starts and stops it."""
        self._endpoint = self._options.endpoint(
            handler,
            self._server_tls,
            addressed=addressed,
            usual=usual,
            fast_path=self._fast_path,
        )
        return self._endpoint
