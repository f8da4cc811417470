"""Logins against a real server: each kind, renewal before the end, once on 401, and no leaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from instep.errors import AuthenticationError, UnreachableError
from instep_tapi.options import AuthOptions, read_options
from instep_tapi.restconf.auth import Authenticator
from tests.instep_http.client_kit import new_client


def auth_options(**table: Any) -> AuthOptions:
    return read_options({"endpoints": ["http://h"], "auth": table}, "source").auth


class Desk:
    """A login desk that counts; `answer` makes each answer from the number of the login."""

    def __init__(self) -> None:
        self.logins: list[tuple[dict[str, str], str]] = []
        self.status = 200
        self.answer: Any = lambda n: {"access_token": f"t{n}", "expires_in": 100}

    async def handle(self, request: web.Request) -> web.Response:
        self.logins.append((dict(request.headers), await request.text()))
        if self.status == 302:
            raise web.HTTPFound("http://127.0.0.2:1/elsewhere")
        return web.json_response(self.answer(len(self.logins)), status=self.status)


@asynccontextmanager
async def desk_for(options: AuthOptions) -> AsyncIterator[tuple[Desk, Authenticator, list[float]]]:
    desk = Desk()
    app = web.Application()
    app.router.add_post("/login", desk.handle)
    now_s = [0.0]
    async with TestServer(app) as server, new_client() as client:
        auth = Authenticator(options, client, lambda: now_s[0])
        auth.use(URL(str(server.make_url("/"))))
        yield desk, auth, now_s


OAUTH2 = {"kind": "oauth2", "token_url": "/login", "client_id": "me", "client_secret": "s3cret"}


@pytest.mark.asyncio
async def test_oauth2_client_credentials() -> None:
    async with desk_for(auth_options(**OAUTH2, scope="tapi")) as (desk, auth, _):
        assert await auth.headers() == {"Authorization": "Bearer t1"}
        [(headers, form)] = desk.logins
        assert form == "grant_type=client_credentials&scope=tapi"
        assert headers["Authorization"] == aiohttp.encode_basic_auth("me", "s3cret")


@pytest.mark.asyncio
async def test_oauth2_password_with_the_client_in_the_body() -> None:
    options = auth_options(
        **OAUTH2, grant="password", username="u", password="p&", client_auth="body"
    )
    async with desk_for(options) as (desk, auth, _):
        await auth.headers()
        assert desk.logins[0][1] == (
            "grant_type=password&username=u&password=p%26&client_id=me&client_secret=s3cret"
        )


@pytest.mark.asyncio
async def test_a_login_of_the_controllers_own() -> None:
    options = auth_options(
        kind="login",
        path="/login",
        body={"user": "u", "password": "p"},
        token_field="result.token",
        expires_field="result.life",
        header="X-Auth-Token",
        scheme="",
    )
    async with desk_for(options) as (desk, auth, now_s):
        desk.answer = lambda n: {"result": {"token": f"t{n}", "life": "50"}}
        assert await auth.headers() == {"X-Auth-Token": "t1"}
        now_s[0] = 46
        assert await auth.headers() == {"X-Auth-Token": "t2"}
        assert desk.logins[0][1] == '{"user": "u", "password": "p"}'


@pytest.mark.asyncio
async def test_a_form_login() -> None:
    options = auth_options(kind="login", path="/login", body={"user": "u"}, encoding="form")
    async with desk_for(options) as (desk, auth, _):
        assert await auth.headers() == {"Authorization": "Bearer t1"}
        assert desk.logins[0][1] == "user=u"


@pytest.mark.asyncio
async def test_a_token_is_renewed_before_its_end() -> None:
    async with desk_for(auth_options(**OAUTH2)) as (desk, auth, now_s):
        await auth.headers()
        now_s[0] = 89
        assert await auth.headers() == {"Authorization": "Bearer t1"}
        now_s[0] = 91
        assert await auth.headers() == {"Authorization": "Bearer t2"}
        assert len(desk.logins) == 2


@pytest.mark.asyncio
async def test_one_login_serves_all_who_wait() -> None:
    async with desk_for(auth_options(**OAUTH2)) as (desk, auth, _):
        first = await asyncio.gather(*(auth.headers() for _ in range(20)))
        await asyncio.gather(*(auth.renew(header, "url") for header in first))
        assert len(desk.logins) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [400, 401, 302, 500])
async def test_a_refused_login_is_reported_without_secrets(status: int) -> None:
    async with desk_for(auth_options(**OAUTH2)) as (desk, auth, _):
        desk.status = status
        with pytest.raises(AuthenticationError, match=f"answered with {status}") as raised:
            await auth.headers()
        assert "s3cret" not in f"{raised.value} {raised.value!r} {raised.value.data}"
        assert raised.value.retriable is (status == 500)


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [{}, [], {"access_token": 1}, {"access_token": "a\r\nX: y"}])
async def test_an_answer_without_a_usable_token(answer: Any) -> None:
    async with desk_for(auth_options(**OAUTH2)) as (desk, auth, _):
        desk.answer = lambda _: answer
        with pytest.raises(AuthenticationError, match="no token under 'access_token'"):
            await auth.headers()


@pytest.mark.asyncio
async def test_a_login_desk_that_is_not_there() -> None:
    async with desk_for(auth_options(**OAUTH2)) as (_, auth, _now):
        auth.use(URL("http://127.0.0.1:1"))
        with pytest.raises(UnreachableError, match="the connection is refused"):
            await auth.headers()


@pytest.mark.asyncio
async def test_a_token_file_is_read_again_when_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with desk_for(auth_options(kind="bearer", token_file=str(file))) as (_, auth, _now):
        old = await auth.headers()
        assert old == {"Authorization": "Bearer old"}
        with pytest.raises(AuthenticationError, match="answers 401"):
            await auth.renew(old, "url")
        file.write_text("new\n")
        assert await auth.renew(old, "url") == {"Authorization": "Bearer new"}
        file.unlink()
        with pytest.raises(
            AuthenticationError, match="the token file cannot be read: No such file"
        ):
            await auth.renew({"Authorization": "Bearer new"}, "url")


@pytest.mark.asyncio
async def test_a_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPI_TOKEN", "abc")
    async with desk_for(auth_options(kind="bearer", token_env="TAPI_TOKEN")) as (_, auth, _now):
        assert await auth.headers() == {"Authorization": "Bearer abc"}
        monkeypatch.setenv("TAPI_TOKEN", "")
        with pytest.raises(AuthenticationError, match="environment variable TAPI_TOKEN"):
            await auth.renew({"Authorization": "Bearer abc"}, "url")


@pytest.mark.asyncio
async def test_a_login_is_not_taken_to_another_endpoint() -> None:
    async with desk_for(auth_options(**OAUTH2)) as (desk, auth, _):
        await auth.headers()
        here = auth._endpoint
        auth.use(URL("http://127.0.0.1:1"))
        auth.use(here)
        await auth.headers()
        assert len(desk.logins) == 2
