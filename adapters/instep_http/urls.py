"""URLs of a configuration and of peers: read, checked, and shown without secrets."""

from __future__ import annotations

import re

from yarl import URL

from instep.errors import ConfigurationError, SourceError

__all__ = ["check_url", "parse_url", "read_listen", "shown"]

_LOGIN = re.compile(r"^([^/?#]*//)?[^/?#]*@")
_MAX_SHOWN_CHARS = 200
_MAX_LABEL_CHARS = 63
_SCHEMES = ("http", "https")


def check_url(
    text: str,
    schemes: tuple[str, ...],
    where: str,
    *,
    secret: bool = False,
    login_hint: str = "",
) -> URL:
    """The URL of a configuration.

    Args:
        text: What was given.
        schemes: Those that are allowed; "" allows a path without scheme and host.
        where: The place of the URL in the configuration, for errors.
        secret: Whether it may contain a user and password; then no error shows it.
        login_hint: The hint where a login belongs instead.

    Raises:
        ConfigurationError: It is not a URL, has another scheme, or contains a user or password.
    """
    name = "***" if secret else repr(shown(text))
    try:
        url = URL(text)
        _ = url.port  # it is parsed here only
    except ValueError:
        raise ConfigurationError(
            f"{name} is not a URL",
            where=where,
            hint="write it as https://host:port; a port is at most 65535",
        ) from None
    if url.scheme not in schemes or (url.scheme and not url.host):
        wanted = " or ".join(f"{scheme}://" for scheme in schemes if scheme)
        given = [] if secret or "://" in text else [scheme for scheme in schemes if scheme]
        written = " or ".join(f"{scheme}://{shown(text).lstrip('/')}" for scheme in given)
        raise ConfigurationError(
            f"{name} is not a URL of {wanted}",
            where=where,
            hint=f"write {written}" if given else f"begin it with {wanted}",
        )
    if not secret and (url.user is not None or url.password is not None):
        raise ConfigurationError(
            "a URL with a login in it would show the login in logs", where=where, hint=login_hint
        )
    return url


def read_listen(text: str, where: str) -> URL:
    """The URL to listen on: ``http://host:port/path``, or ``host:port`` for http.

    Raises `ConfigurationError`: no such URL, a login in it, or a query or fragment, which no
    request of a peer would match.
    """
    url = check_url(text if "://" in text else f"http://{text}", _SCHEMES, where)
    if re.fullmatch(r"\d{1,5}", url.host or ""):
        raise ConfigurationError(
            f"the address to listen on has no host: {url.host}",
            where=where,
            hint=f'write "127.0.0.1:{url.host}", or the address that peers reach',
        )
    if url.query_string or url.fragment:
        raise ConfigurationError(
            "the address to listen on ends with a query or a fragment",
            where=where,
            hint="leave out ? or # and what follows it",
        )
    return url


def parse_url(text: URL | str) -> URL:
    """Parse an http(s) URL that a peer stated. Raises `SourceError` if nothing can be sent there.

    A label over 63 letters or an empty one is refused here: name resolution would fail on it with
    an error that depends on the library.
    """
    try:
        url = URL(text)
        host, port = url.host or "", url.port
        url.host_subcomponent  # noqa: B018 - it is encoded here only
        labels = (url.raw_host or "").removesuffix(".").split(".")
    except ValueError:  # UnicodeError, too
        host, port, labels, url = "", None, [], URL()
    fits = ":" in host or all(0 < len(label) <= _MAX_LABEL_CHARS for label in labels)
    if url.scheme not in _SCHEMES or not host or port is None or not fits:
        raise SourceError("this is not a URL of http:// or https://", where=shown(text))
    return url


def shown(url: URL | str) -> str:
    """A URL for errors and logs: without query, fragment, user and password, and not too long."""
    text = str(url).partition("?")[0].partition("#")[0]
    text = _LOGIN.sub(r"\1", text)
    return "".join(c if c.isprintable() else "?" for c in text[:_MAX_SHOWN_CHARS])
