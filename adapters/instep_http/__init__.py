"""HTTP for adapters: a server and a client with bounds against hostile peers."""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep_http.address_policy import ANY_ADDRESS, PUBLIC_ONLY, AddressPolicy
    from instep_http.client import Answer, ClientSettings, GuardedClient, post_with_retries
    from instep_http.cloud_events import CloudEventsTarget
    from instep_http.connection_limits import is_loopback
    from instep_http.errors import FOREIGN_ERRORS, retry_later, source_error
    from instep_http.listen_options import (
        ListenOptions,
        ListenTls,
        check_authenticated,
        read_listen_table,
    )
    from instep_http.redirects import (
        NO_REDIRECTS,
        SAME_ORIGIN,
        KeepMethod,
        RedirectPolicy,
        SameOrigin,
    )
    from instep_http.server import (
        BoundedServer,
        Handler,
        MessageSocket,
        Request,
        Response,
        ServerLimits,
        WebSocketHandler,
        problem,
    )
    from instep_http.tls import TlsOptions, check_files, client_context, server_context
    from instep_http.urls import check_url, parse_url, read_listen, shown
    from instep_http.webhook import Webhook

__all__ = [
    "ANY_ADDRESS",
    "FOREIGN_ERRORS",
    "NO_REDIRECTS",
    "PUBLIC_ONLY",
    "SAME_ORIGIN",
    "AddressPolicy",
    "Answer",
    "BoundedServer",
    "ClientSettings",
    "CloudEventsTarget",
    "GuardedClient",
    "Handler",
    "KeepMethod",
    "ListenOptions",
    "ListenTls",
    "MessageSocket",
    "RedirectPolicy",
    "Request",
    "Response",
    "SameOrigin",
    "ServerLimits",
    "TlsOptions",
    "WebSocketHandler",
    "Webhook",
    "check_authenticated",
    "check_files",
    "check_url",
    "client_context",
    "is_loopback",
    "parse_url",
    "post_with_retries",
    "problem",
    "read_listen",
    "read_listen_table",
    "retry_later",
    "server_context",
    "shown",
    "source_error",
]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep_http.address_policy": (
                "ANY_ADDRESS",
                "PUBLIC_ONLY",
                "AddressPolicy",
            ),
            "instep_http.client": (
                "Answer",
                "ClientSettings",
                "GuardedClient",
                "post_with_retries",
            ),
            "instep_http.cloud_events": ("CloudEventsTarget",),
            "instep_http.connection_limits": ("is_loopback",),
            "instep_http.errors": (
                "FOREIGN_ERRORS",
                "retry_later",
                "source_error",
            ),
            "instep_http.listen_options": (
                "ListenOptions",
                "ListenTls",
                "check_authenticated",
                "read_listen_table",
            ),
            "instep_http.redirects": (
                "NO_REDIRECTS",
                "SAME_ORIGIN",
                "KeepMethod",
                "RedirectPolicy",
                "SameOrigin",
            ),
            "instep_http.server": (
                "BoundedServer",
                "Handler",
                "MessageSocket",
                "Request",
                "Response",
                "ServerLimits",
                "WebSocketHandler",
                "problem",
            ),
            "instep_http.tls": (
                "TlsOptions",
                "check_files",
                "client_context",
                "server_context",
            ),
            "instep_http.urls": (
                "check_url",
                "parse_url",
                "read_listen",
                "shown",
            ),
            "instep_http.webhook": ("Webhook",),
        },
    )
