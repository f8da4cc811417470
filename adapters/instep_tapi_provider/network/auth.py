"""Logins: OAuth2 (client credentials, password), a JSON login, and Bearer tokens (RFC 6749, RFC
6750).
"""

import base64
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_plus

from aiohttp import web

from instep_tapi_provider.network.site import Site, restconf_error
from instep_tapi_provider.settings import AuthSettings


class Logins:
    """Issues tokens and knows which are valid. `now`: seconds since the epoch."""

    def __init__(self, settings: AuthSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._expires_s: dict[str, float] = {}

    def issue(self) -> str:
        """A new token."""
        now = self._now()
        self._expires_s = {t: at for t, at in self._expires_s.items() if at > now}
        token = secrets.token_urlsafe(24)
        self._expires_s[token] = now + self._settings.token_life_s
        return token

    def revoke_all(self) -> None:
        """Make all issued tokens invalid."""
        self._expires_s.clear()

    def valid(self, authorization: str) -> bool:
        """Whether an Authorization header holds a token that is valid now."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        token = token.strip()
        known = any(_same(token, other) for other in self._settings.tokens)
        return known or self._expires_s.get(token, 0.0) > self._now()

    async def oauth2(self, request: web.Request) -> web.Response:
        """The token endpoint (RFC 6749 4.3, 4.4): client by Basic header or in the body."""
        form = await request.post()
        client = _basic(request) or (form.get("client_id", ""), form.get("client_secret", ""))
        settings = self._settings
        match form.get("grant_type"):
            case "client_credentials":
                good = bool(settings.client_id) and _pair(
                    client, (settings.client_id, settings.client_secret)
                )
            case "password":
                user = (form.get("username", ""), form.get("password", ""))
                good = bool(settings.username) and _pair(
                    user, (settings.username, settings.password)
                )
            case _:
                return web.json_response({"error": "unsupported_grant_type"}, status=400)
        if not good:
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response(
            {
                "access_token": self.issue(),
                "token_type": "Bearer",
                "expires_in": int(settings.token_life_s),
            },
            headers={"Cache-Control": "no-store"},
        )

    async def login(self, request: web.Request) -> web.Response:
        """A controller's own login: user and password in a JSON or form body."""
        settings = self._settings
        body: Mapping[str, Any]
        try:
            body = await (
                request.json() if request.content_type == "application/json" else request.post()
            )
            user = (body[settings.login_username_field], body[settings.login_password_field])
        except (ValueError, KeyError, TypeError):
            fields = f"{settings.login_username_field} and {settings.login_password_field}"
            return restconf_error(400, "missing-attribute", f"the body needs {fields}")
        if not _pair(user, (settings.username, settings.password)):
            return restconf_error(401, "access-denied", "unknown user or wrong password")
        return web.json_response(
            {
                settings.login_token_field: self.issue(),
                "token_type": "Bearer",
                "expires_in": int(settings.token_life_s),
            },
            status=201,
        )


def unauthorized(site: Site, logins: Logins, request: web.Request) -> web.Response | None:
    """A 401 for a request without a valid token, or None when it may go on."""
    if not site.settings.auth.required:
        return None
    if site.faults.unauthorized_once:
        site.faults.unauthorized_once = False
    elif logins.valid(request.headers.get("Authorization", "")):
        return None
    refusal = restconf_error(401, "access-denied", "no valid token")
    refusal.headers["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    return refusal


def _basic(request: web.Request) -> tuple[str, str] | None:
    """Client and secret from a Basic header, each form-encoded (RFC 6749 2.3.1)."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    return unquote_plus(client), unquote_plus(secret)


def _same(given: Any, wanted: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), wanted.encode())


def _pair(given: tuple[Any, Any], wanted: tuple[str, str]) -> bool:
    return _same(given[0], wanted[0]) and _same(given[1], wanted[1])
