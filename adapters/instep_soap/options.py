"""The options of a source that listens for envelopes, read from a table of the configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec
from yarl import URL

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep.model.limits import Count
from instep.sequencing.settings import SequencerSettings
from instep_http import ListenOptions, check_files, check_url, read_listen_table
from instep_soap.allowed_endpoints import AllowedEndpoints
from instep_soap.endpoint import SoapEndpoint, SoapHandler, UsualMessages
from instep_soap.xml import XmlLimits

__all__ = ["SoapOptions", "read_soap_options"]

OptionsT = TypeVar("OptionsT", bound="SoapOptions")


class SoapOptions(ListenOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a source listens for envelopes, and where it sends some."""

    endpoint_class: ClassVar[type[SoapEndpoint]] = SoapEndpoint
    """What `endpoint` makes; a test may have one without a socket."""

    allow_endpoints: tuple[str, ...] = ()
    """The origins (``https://source.example.org:8443``) that a peer may name as the address for
    acknowledgements, faults or replies: nothing is sent to any other. Without one, only the
    response of a request carries them.
    """
    max_elements: Count = 100_000
    """Most XML elements of an envelope."""

    def endpoint(
        self,
        handler: SoapHandler,
        tls: ssl.SSLContext | None,
        *,
        addressed: bool = True,
        usual: UsualMessages[Any] | None = None,
        fast_path: bool = True,
    ) -> SoapEndpoint:
        """The endpoint that these options describe; see `SoapEndpoint`."""
        return self.endpoint_class(
            URL(self.listen),
            handler,
            self.limits(),
            xml_limits=XmlLimits(max_elements=self.max_elements),
            tls=tls,
            addressed=addressed,
            usual=usual,
            fast_path=fast_path,
            allow_origins=frozenset(self.allow_origins),
            allow_hosts=frozenset(self.allow_hosts),
        )

    def allowed_endpoints(self, tls: ssl.SSLContext) -> AllowedEndpoints:
        """The endpoints that something may be sent to."""
        return AllowedEndpoints(self.allow_endpoints, tls, self.send_timeout_s)


def read_soap_options(
    kind: type[OptionsT],
    options: Mapping[str, Any],
    where: str,
    *,
    sequence: SequencerSettings,
) -> OptionsT:
    """Check and read the table of a source; what its table `sequence` does not state is as in
    `sequence`. Raises `ConfigurationError`.
    """
    table = {name: value for name, value in options.items() if name != "kind"}
    if isinstance(table.get("sequence"), Mapping):
        given = {**msgspec.to_builtins(sequence), **table["sequence"]}
        table["sequence"] = read_table(SequencerSettings, given, f"{where}.sequence")
    table = read_listen_table(table, where, example="http://127.0.0.1:9555/rm")
    read = read_table(kind, table, where)
    _check(read, where)
    return read


def _check(options: SoapOptions, where: str) -> None:
    options.check_listen(where)
    for place, origin in enumerate(options.allow_endpoints):
        at = f"{where}.allow_endpoints[{place}]"
        endpoint = check_url(origin, ("http", "https"), at)
        if endpoint.path not in ("", "/") or endpoint.query_string or endpoint.fragment:
            raise ConfigurationError("an origin has no path", where=at)
    check_files(options.tls, f"{where}.tls")
