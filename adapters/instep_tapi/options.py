"""The options of a `tapi` source, read from a table of the configuration and checked by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from multidict import CIMultiDict
from yarl import URL

from instep.config.options import kind_hint, read_table
from instep.config.plugins import verifier_plugin
from instep.config.secret import Secret
from instep.errors import ConfigurationError
from instep_http import TlsOptions, check_files, check_url, shown

__all__ = [
    "AuthOptions",
    "Authenticity",
    "Bearer",
    "FailOver",
    "Login",
    "NoAuth",
    "OAuth2",
    "Options",
    "StreamOptions",
    "TapiTls",
    "host_of",
    "read_options",
]

MIB = 1024 * 1024
_SOME_OR_ONE = msgspec.Meta(extra_json_schema={"minItems": 1, "orOne": True})
_URL = msgspec.Meta(extra_json_schema={"pattern": "^https?://"})
_ABOVE_0 = msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0})
"""Read by editors (`instep config --schema`); `_check` refuses the rest, with a text of its own."""
_FROM_0 = msgspec.Meta(extra_json_schema={"minimum": 0})
_HTTP = ("http", "https")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_OTHERS_HEADERS = re.compile(
    "accept|authorization|connection|content-.*|host|last-event-id|proxy-.*|sec-.*|te|trailer"
    "|transfer-encoding|upgrade",
    re.IGNORECASE,
)
"""Headers that the source sets itself, or that would change how a request is framed."""


class NoAuth(msgspec.Struct, frozen=True, tag_field="kind", tag="none"):
    """No login."""


class Bearer(msgspec.Struct, frozen=True, tag_field="kind", tag="bearer"):
    """A token that somebody else issued: given, from the environment, or from a file."""

    token: Secret | None = None
    """The token itself; better written as ``${NAME}``."""
    token_env: str | None = None
    """The environment variable that holds it."""
    token_file: str | None = None
    """The file that holds it. Read again when the provider answers 401: whoever renews the token
    rewrites the file.
    """


class OAuth2(msgspec.Struct, frozen=True, tag_field="kind", tag="oauth2"):
    """RFC 6749: client credentials (4.4) or the owner's password (4.3)."""

    token_url: str
    """Where tokens are issued: a whole URL, or a path below the endpoint."""
    grant: Literal["client_credentials", "password"] = "client_credentials"
    """Which grant is asked for."""
    client_id: str | None = None
    """Needed for client credentials."""
    client_secret: Secret | None = None
    """Needed for client credentials."""
    client_auth: Literal["basic", "body"] = "basic"
    """Where the client's id and secret are sent: as HTTP basic authentication, or in the body."""
    username: str | None = None
    """Needed for the password grant."""
    password: Secret | None = None
    """Needed for the password grant."""
    scope: str | None = None
    """The scope to ask for, where the server requires one."""


class Login(msgspec.Struct, frozen=True, tag_field="kind", tag="login"):
    """A login of the controller's own: a POST that answers with a token."""

    path: str
    """Below the endpoint, or a whole URL."""
    body: dict[str, Any]
    """The body of the POST, with user and password in it; never shown."""
    encoding: Literal["json", "form"] = "json"
    """How the body is written."""
    token_field: str = "access_token"  # noqa: S105 - the name of a member, no secret
    """Where the token is in the answer; dots lead into objects: ``result.token``."""
    expires_field: str | None = None
    """Where its life in seconds is in the answer, if it is there."""
    header: str = "Authorization"
    """The header that carries the token from then on."""
    scheme: str = "Bearer"
    """Before the token in the header; empty for the bare token."""

    def __repr__(self) -> str:
        return f"Login(path={self.path!r}, body=***)"


AuthOptions = NoAuth | Bearer | OAuth2 | Login
_AUTH: dict[str, type[NoAuth | Bearer | OAuth2 | Login]] = {
    "none": NoAuth,
    "bearer": Bearer,
    "oauth2": OAuth2,
    "login": Login,
}


class StreamOptions(msgspec.Struct, frozen=True):
    """Which streams to follow; nothing given: every one that can be connected to."""

    classes: tuple[str, ...] = ()
    """Streams that carry one of these classes: NODE, CONDITION_DETECTOR …"""
    ids: tuple[str, ...] = ()
    """These streams, by stream-id or uuid."""
    strategies: tuple[str, ...] = ()
    """Streams with one of these log strategies: COMPACTED, TRUNCATED …"""
    only_classes: tuple[str, ...] = ()
    """Within the streams, keep only entities of these classes (TR-548 3.12)."""
    only_below: tuple[str, ...] = ()
    """Within the streams, keep these entities, by uuid, and what has one of them in its
    parent-address alone; what states no parent-address is kept (TR-548 3.12).
    """


class TapiTls(TlsOptions, frozen=True):
    """How the provider proves itself, and how we do."""

    insecure_websocket: bool = False
    """Open a stream in clear, login and all, where an ``https`` endpoint says ``ws``."""


class Authenticity(msgspec.Struct, frozen=True):
    """How `record-authenticity-token` is checked (TR-548 3.10)."""

    kind: str
    """An entry point of `instep.verifiers`: hmac, or another's."""
    options: dict[str, Any] = {}
    """Its other keys. Of hmac: secret, algorithm (sha256, sha384, sha512), encoding (base64,
    hex).
    """

    def __repr__(self) -> str:
        return f"Authenticity(kind={self.kind!r}, options=***)"


class FailOver(msgspec.Struct, frozen=True):
    """When one of several endpoints is left for another (TR-548 ST-4.2)."""

    policy: Literal["priority", "round-robin"] = "priority"
    """Which comes next. ``priority``: the first of the list that works, and a preferred one is used
    again once it is healthy. ``round-robin``: the one after the one that is left.
    """
    leave_after_s: Annotated[float, _FROM_0] = 5.0
    """An endpoint where nothing has worked for so long is left. Each move costs a new alignment."""
    fail_back_after_s: Annotated[float, _FROM_0] = 300.0
    """With ``priority``: an endpoint earlier in the list is used again when it was healthy for so
    long; after it had to be left again soon, for a multiple.
    """
    probe_every_s: Annotated[float, _ABOVE_0] = 10.0
    """Time between two probes of such an endpoint."""
    refused_retry_s: Annotated[float, _FROM_0] = 300.0
    """An endpoint that refused our login is not tried again for so long, while there are others."""

    def check(self, where: str) -> None:
        """Raise `ConfigurationError` for values that cannot work."""
        for name in ("leave_after_s", "fail_back_after_s", "refused_retry_s"):
            if getattr(self, name) < 0:
                raise ConfigurationError("must not be below 0", where=f"{where}.{name}")
        if self.probe_every_s <= 0:
            raise ConfigurationError("must be above 0", where=f"{where}.probe_every_s")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a `tapi` source. Times are in seconds, sizes in bytes."""

    endpoints: Annotated[tuple[Annotated[str, _URL], ...], _SOME_OR_ONE]
    """Where the provider's instances are, ``https://host:port``; the first that answers is used."""
    fail_over: FailOver = FailOver()
    """When another of the endpoints is used."""
    streams: StreamOptions = StreamOptions()
    """Which streams to follow."""
    stream_hosts: tuple[str, ...] = ()
    """Hosts besides those of the endpoints where a stream may be read, if the provider names them:
    the login is sent there."""
    max_streams: Annotated[int, _ABOVE_0] = 200
    """Most streams to follow; it is an error if more fit."""
    auth: AuthOptions = NoAuth()
    """How to log in."""
    headers: dict[str, Secret] = {}
    """Headers of our own, sent with each request and each opening of a stream: ``Origin``, the name
    of a tenant … They go wherever the login goes.
    """
    tls: TapiTls = TapiTls()
    """How the provider proves itself, and how we do."""
    proxy: Secret | None = None
    """URL of an HTTP proxy; treated as a secret, since it may hold a password."""
    roots: tuple[str, ...] = ()
    """RESTCONF roots to try after host-meta and before those of the field: ``/restconf``."""
    max_frame_bytes: Annotated[int, _ABOVE_0] = 4 * MIB
    """Largest WebSocket message; a larger one is an error."""
    max_body_bytes: Annotated[int, _ABOVE_0] = 256 * MIB
    """Largest answer to a request; a larger one is an error."""
    connect_timeout_s: Annotated[float, _ABOVE_0] = 10.0
    """Longest wait for a connection."""
    request_timeout_s: Annotated[float, _ABOVE_0] = 60.0
    """Longest silence within the answer to a request."""
    pong_interval_s: Annotated[float, _ABOVE_0] = 15.0
    """How often a Pong is sent: half of the 30 s after which providers drop a silent client (TR-548
    5.2.4).
    """
    dead_peer_s: Annotated[float, _ABOVE_0] = 60.0
    """After this silence the provider is asked by a Ping, after its silence given up. Over
    server-sent events there is no Ping: it is given up 15 s later, unless a comment comes.
    """
    compression: bool = True
    """Offer permessage-deflate."""
    hold_records: Annotated[int, _ABOVE_0] = 50_000
    """What one stream buffers before it stops reading its socket, in records of 400 bytes.
    `hold_bytes` may be reached first.
    """
    hold_bytes: Annotated[int, _ABOVE_0] = 64 * MIB
    """What one stream buffers before it stops reading its socket, in bytes."""
    hold_total_bytes: Annotated[int, _ABOVE_0] = 256 * MIB
    """What all streams together buffer before those with something buffered stop reading; and the
    most bytes of messages whose last fragment has not come.
    """
    batch_records: Annotated[int, _ABOVE_0] = 5_000
    """Most that one `receive()` decodes, records of 400 bytes (a frame is never cut); twice as much
    where most bodies stay undecoded, as in a storm.
    """
    trust_compacted: bool = False
    """Trust a COMPACTED log whose compacted-log-details are missing (TR-548 3.7.1)."""
    tapi: Literal["2.1.3", "2.6"] | None = None
    """The edition whose rules the streams follow, 2.6 for 2.4 to 2.6; without it, the one that
    each stream's declaration shows.
    """
    authenticity: Authenticity | None = None
    """How the authenticity of each record is checked; without it nothing is checked."""

    def request_headers(self, login: Mapping[str, str]) -> CIMultiDict[str]:
        """The headers of a request or an opening: our own, and those of the login."""
        headers = CIMultiDict((name, value.reveal()) for name, value in self.headers.items())
        headers.update(login)
        return headers


_POSITIVE = (
    "max_frame_bytes",
    "max_body_bytes",
    "connect_timeout_s",
    "request_timeout_s",
    "pong_interval_s",
    "dead_peer_s",
    "hold_records",
    "hold_bytes",
    "hold_total_bytes",
    "max_streams",
    "batch_records",
)


def read_options(options: Mapping[str, Any], where: str = "read_options") -> Options:
    """Check and read the table of a source; connects to nothing. `where`: the place that an error
    names. Raises `ConfigurationError`.
    """
    table = {name: value for name, value in options.items() if name != "kind"}
    if isinstance(table.get("endpoints"), str):
        table["endpoints"] = [table["endpoints"]]
    for name, struct in (
        ("streams", StreamOptions),
        ("tls", TapiTls),
        ("fail_over", FailOver),
    ):
        if name in table:
            table[name] = read_table(struct, table[name], f"{where}.{name}")
    if "auth" in table:
        table["auth"] = _read_auth(table["auth"], f"{where}.auth")
    if "authenticity" in table:
        table["authenticity"] = _read_authenticity(table["authenticity"], f"{where}.authenticity")
    endpoints = {"endpoints": ["https://controller.example.org"]}
    read = read_table(Options, table, where, required=endpoints)
    _check(read, where)
    return read


def _read_auth(table: object, where: str) -> AuthOptions:
    if not isinstance(table, Mapping):
        raise ConfigurationError(
            "this is not a table",
            where=where,
            hint='for example auth = { kind = "bearer", token = "${TOKEN}" }',
        )
    if "kind" not in table:
        raise ConfigurationError(
            "the key 'kind' is missing", where=where, hint=kind_hint(table, _AUTH)
        )
    kind = table["kind"]
    if kind not in _AUTH:
        raise ConfigurationError(
            f"there is no login of kind {kind!r}", where=where, hint=f"use one of {_list(_AUTH)}"
        )
    read = read_table(_AUTH[kind], table, where)
    match read:
        case Bearer():
            given = [name for name in ("token", "token_env", "token_file") if getattr(read, name)]
            if len(given) != 1:
                raise ConfigurationError(
                    f"{len(given)} tokens given: {_list(given) or 'none'}",
                    where=where,
                    hint="give one of token, token_env, token_file",
                )
        case OAuth2(grant="client_credentials"):
            _require(read, ("client_id", "client_secret"), where)
        case OAuth2():
            _require(read, ("username", "password"), where)
        case _:
            pass
    return read


def _read_authenticity(table: object, where: str) -> Authenticity:
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise ConfigurationError("a table with a kind is needed", where=where, hint='kind = "hmac"')
    options = {name: value for name, value in table.items() if name != "kind"}
    verifier_plugin(table["kind"], f"{where}.kind").check(options, where)
    return Authenticity(table["kind"], options)


def _check(options: Options, where: str) -> None:
    if not options.endpoints:
        raise ConfigurationError(
            "the key 'endpoints' has no endpoint",
            where=where,
            hint='for example endpoints = ["https://controller.example.org"]',
        )
    for endpoint in options.endpoints:
        _check_endpoint(endpoint, f"{where}.endpoints")
    for name, value in options.headers.items():
        _check_header(name, value.reveal(), f"{where}.headers")
    for host in options.stream_hosts:
        if host_of(host) is None:
            raise ConfigurationError(
                f"{host!r} is not the name or address of a host",
                where=f"{where}.stream_hosts",
                hint='leave out scheme, port and path: stream_hosts = ["streams.example"]',
            )
    _check_auth(options.auth, f"{where}.auth")
    if options.proxy is not None:
        check_url(options.proxy.reveal(), _HTTP, f"{where}.proxy", secret=True)
    for name in _POSITIVE:
        if getattr(options, name) <= 0:
            raise ConfigurationError("must be above 0", where=f"{where}.{name}")
    options.fail_over.check(f"{where}.fail_over")
    check_files(options.tls, f"{where}.tls")


def _check_endpoint(endpoint: str, where: str) -> None:
    url = check_url(endpoint, _HTTP, where, login_hint="use auth")
    if url.query_string or url.fragment:
        raise ConfigurationError(
            f"the endpoint {shown(url)} ends with a query or a fragment",
            where=where,
            hint="leave out ? or # and what follows it",
        )


def _check_auth(auth: AuthOptions, where: str) -> None:
    match auth:
        case Bearer(token=Secret() as token) if problem := token_problem(token.reveal()):
            raise ConfigurationError(problem, where=f"{where}.token")
        case OAuth2(token_url=url):
            check_url(url, (*_HTTP, ""), f"{where}.token_url", login_hint="use auth")
        case Login(path=url):
            check_url(url, (*_HTTP, ""), f"{where}.path", login_hint="use auth")
        case _:
            pass


def _check_header(name: str, value: str, where: str) -> None:
    if _HEADER_NAME.fullmatch(name) is None:
        raise ConfigurationError(f"{name!r} is not the name of a header", where=where)
    if _OTHERS_HEADERS.fullmatch(name):
        raise ConfigurationError(
            f"{name} is set by the source itself", where=where, hint="for a login use auth"
        )
    if not value.isprintable():
        raise ConfigurationError("the value has a control character", where=f"{where}.{name}")


def token_problem(token: str) -> str:
    """Why a token cannot be sent in a header; empty where it can. Spaces around it are left out."""
    token = token.strip()
    if not token:
        return "the token is empty"
    if not (token.isascii() and token.isprintable()):
        return "the token has a line break, or a character that is not ASCII"
    return ""


def host_of(text: str) -> str | None:
    """The host that this text is, in the form to compare; None if it is more or less than one."""
    try:
        url = URL(f"//[{text}]" if text.count(":") > 1 else f"//{text}")
        host = url.raw_host
        alone = url.explicit_port is None and url.raw_user is None and url.raw_path_qs in {"", "/"}
    except ValueError:
        return None
    return host.rstrip(".") if host and alone and "/" not in text else None


def _require(read: msgspec.Struct, names: tuple[str, ...], where: str) -> None:
    for name in names:
        if not getattr(read, name):
            raise ConfigurationError(f"{name} is missing", where=where)


def _list(names: Any) -> str:
    return ", ".join(names)
