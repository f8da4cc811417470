"""Logs in and keeps the login fresh (TR-548 ST-0.1, 5.10.2): the header for every request.

One login at a time serves all callers that wait for it. It is renewed a little before its end, and
once when the provider refuses it; the token itself never reaches a message.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from instep.config.secret import Secret
from instep.errors import AuthenticationError
from instep_http import NO_REDIRECTS, GuardedClient, shown
from instep_tapi.options import AuthOptions, Bearer, Login, NoAuth, OAuth2, token_problem

__all__ = ["Authenticator"]

_MAX_ANSWER_BYTES = 256 * 1024
_LONGEST_LOGIN_S = 120.0
_MARGIN_S = 30.0
_MARGIN_SHARE = 0.1


class _Ticket(msgspec.Struct, frozen=True):
    """A login: the header's value and when to renew it."""

    value: Secret
    renew_at_s: float = float("inf")


class Authenticator:
    """Holds the login of one source for one endpoint at a time.

    Args:
        options: How to log in.
        client: Sends the logins.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        options: AuthOptions,
        client: GuardedClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._ticket: _Ticket | None = None
        self._endpoint = URL()
        self._login = asyncio.Lock()

    def use(self, endpoint: URL) -> None:
        """Log in at this endpoint from now on; a login at another one is forgotten."""
        if endpoint != self._endpoint:
            self._endpoint, self._ticket = endpoint, None

    def reconfigure(self, options: AuthOptions) -> None:
        """Log in so from now on; connections that are open stay as they are."""
        if options != self._options:
            self._options, self._ticket = options, None

    async def headers(self) -> dict[str, str]:
        """The header to send. Raises `AuthenticationError`, or `SourceError` without an answer."""
        ticket = await self._valid()
        if ticket is None:
            return {}
        name = self._options.header if isinstance(self._options, Login) else "Authorization"
        return {name: ticket.value.reveal()}

    async def renew(self, refused: dict[str, str], where: str) -> dict[str, str]:
        """Headers to try after these were answered with 401.

        Raises `AuthenticationError` where there is nothing else to try.
        """
        async with self._login:
            if self._ticket is not None and self._ticket.value.reveal() in refused.values():
                self._ticket = None
        headers = await self.headers()
        if headers == refused:
            raise self.refusal(where)
        return headers

    def refusal(self, where: str) -> AuthenticationError:
        """The error for a refused login, where there is nothing else to try."""
        match self._options:
            case NoAuth():
                hint = "give a login: --token or --auth-config, in a configuration `auth`"
            case Bearer():
                hint = "the token is wrong or expired: give a new one"
            case _:
                hint = "the login worked, its token does not: check what this user may do"
        return AuthenticationError("the provider answers 401", where=where, hint=hint, status=401)

    async def _valid(self) -> _Ticket | None:
        if isinstance(self._options, NoAuth):
            return None
        async with self._login:
            if self._ticket is None or self._clock() >= self._ticket.renew_at_s:
                self._ticket = await self._log_in()
            return self._ticket

    async def _log_in(self) -> _Ticket:
        match self._options:
            case Bearer() as bearer:
                return _Ticket(Secret(f"Bearer {_given_token(bearer)}"))
            case OAuth2() as oauth2:
                return await self._oauth2(oauth2)
            case Login() as login:
                return await self._own_login(login)
            case _:
                raise AssertionError("no login is needed")

    async def _oauth2(self, options: OAuth2) -> _Ticket:
        form: dict[str, str] = {"grant_type": options.grant}
        headers = {"Accept": "application/json"}
        if options.grant == "password":
            form |= {"username": options.username or "", "password": _revealed(options.password)}
        if options.scope:
            form["scope"] = options.scope
        if options.client_id and options.client_auth == "basic":
            headers["Authorization"] = aiohttp.encode_basic_auth(
                options.client_id, _revealed(options.client_secret)
            )
        elif options.client_id:
            form |= {
                "client_id": options.client_id,
                "client_secret": _revealed(options.client_secret),
            }
        url = self._endpoint.join(URL(options.token_url))
        answer = await self._post(url, headers=headers, data=form)
        return self._ticket_of(answer, url, "access_token", "expires_in", "Bearer")

    async def _own_login(self, options: Login) -> _Ticket:
        url = self._endpoint.join(URL(options.path))
        body: dict[str, Any] = {
            "data" if options.encoding == "form" else "json": options.body,
        }
        answer = await self._post(url, headers={"Accept": "application/json"}, **body)
        return self._ticket_of(
            answer, url, options.token_field, options.expires_field, options.scheme
        )

    async def _post(self, url: URL, **request: Any) -> Any:
        answer = await self._client.send(
            "POST",
            url,
            redirects=NO_REDIRECTS,
            max_body_bytes=_MAX_ANSWER_BYTES,
            total_timeout_s=_LONGEST_LOGIN_S,
            **request,
        )
        status = answer.status
        if status not in {200, 201}:
            raise AuthenticationError(
                f"the login is answered with {status}",
                where=shown(url),
                hint="check user, password or client in auth"
                if status in {400, 401, 403}
                else "check the address of the login",
                retriable=status == 429 or status >= 500,
                status=status,
            )
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise AuthenticationError("the login answers no JSON", where=shown(url)) from None

    def _ticket_of(
        self, answer: Any, url: URL, token_field: str, expires_field: str | None, scheme: str
    ) -> _Ticket:
        token = _field(answer, token_field)
        if not isinstance(token, str) or token_problem(token):
            raise AuthenticationError(
                f"the login's answer has no token under {token_field!r}",
                where=shown(url),
                hint="set auth.token_field to the field that has it",
            )
        life_s = _seconds(_field(answer, expires_field)) if expires_field else None
        value = Secret(f"{scheme} {token.strip()}".strip())
        if life_s is None:
            return _Ticket(value)
        return _Ticket(value, self._clock() + life_s - min(_MARGIN_S, life_s * _MARGIN_SHARE))


def _given_token(options: Bearer) -> str:
    if options.token is not None:
        token = options.token.reveal()
        where = "auth.token"
    elif options.token_env is not None:
        token = os.environ.get(options.token_env, "")
        where = f"environment variable {options.token_env}"
    else:
        path = Path(options.token_file or "")
        where = str(path)
        try:
            token = path.read_text()
        except OSError as error:
            raise AuthenticationError(
                f"the token file cannot be read: {error.strerror}", where=where
            ) from error
        except UnicodeDecodeError as error:
            raise AuthenticationError("the token file is not text", where=where) from error
    if problem := token_problem(token):
        raise AuthenticationError(problem, where=where)
    return token.strip()


def _revealed(secret: Secret | None) -> str:
    return secret.reveal() if secret is not None else ""


def _field(answer: Any, path: str) -> Any:
    for name in path.split("."):
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < 1e9 else None
