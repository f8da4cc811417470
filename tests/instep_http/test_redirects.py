"""Redirects: which are followed, with what, and where a login never goes."""

from __future__ import annotations

import ssl

import pytest
import trustme
from aiohttp import web

from instep.errors import UnreachableError
from instep_http.redirects import NO_REDIRECTS, SAME_ORIGIN, KeepMethod
from tests.instep_http.client_kit import answering, new_client, status

LOGIN = {"Authorization": "Bearer hush", "X-Auth": "hush", "Content-Type": "text/plain"}


def to_there(code: int, location: str = "/there") -> object:
    def answers(request: web.BaseRequest, _: int) -> web.Response:
        if request.path == "/in":
            return web.Response(status=code, headers={"Location": location})
        return web.Response(body=b"there")

    return answers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "method", "body"),
    [
        (301, "GET", b""),
        (302, "GET", b""),
        (303, "GET", b""),
        (307, "POST", b"x"),
        (308, "POST", b"x"),
    ],
)
async def test_within_one_origin_all_are_followed_as_the_status_says(
    code: int, method: str, body: bytes
) -> None:
    async with answering(to_there(code)) as peer, new_client() as client:  # type: ignore[arg-type]
        answer = await client.send("POST", peer.url, data=b"x", headers=LOGIN)
    assert answer.body == b"there"
    assert answer.url.path == "/there"
    assert peer.came == [("POST", "/in", b"x"), (method, "/there", body)]
    assert peer.headers[1]["X-Auth"] == "hush"


@pytest.mark.asyncio
@pytest.mark.parametrize("policy", [SAME_ORIGIN, KeepMethod(other_origin=True)])
async def test_redirects_in_a_circle_end(policy: object) -> None:
    async with answering(status(307, Location="/in")) as peer, new_client() as client:
        with pytest.raises(UnreachableError, match="too many redirects") as raised:
            await client.send("GET", peer.url, redirects=policy)  # type: ignore[arg-type]
    assert len(peer.came) == policy.max_redirects + 1  # type: ignore[attr-defined]
    assert not raised.value.retriable


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "location",
    ["{other}/", "//{host}/", "http:", "\tx://", "{other}@", "http://[", "https://{own}"],
)
async def test_a_login_is_taken_to_no_other_origin(location: str) -> None:
    async with answering(status(200)) as other:
        origin = other.url.removesuffix("/in")

        def answers(request: web.BaseRequest, _: int) -> web.Response:
            host = origin.removeprefix("http://")
            to = location.format(other=origin, host=host, own=request.host)
            return web.Response(status=307, headers={"Location": to})

        async with answering(answers) as peer, new_client() as client:
            with pytest.raises(UnreachableError) as raised:
                await client.send("GET", peer.url, headers=LOGIN)
    assert other.came == []
    assert not raised.value.retriable
    assert "hush" not in f"{raised.value} {raised.value!r} {raised.value.data}"


@pytest.mark.asyncio
async def test_another_origin_gets_the_body_only_where_it_may_and_never_the_login() -> None:
    async with (
        new_client() as client,
        answering(status(202)) as other,
        answering(status(307, Location=other.url)) as peer,
    ):
        with pytest.raises(UnreachableError, match="not encrypted"):
            await client.send(
                "POST", peer.url, data=b"x", headers=LOGIN, redirects=KeepMethod(other_origin=False)
            )
        assert other.came == []
        anywhere = KeepMethod(other_origin=True)
        await client.send("POST", peer.url, data=b"x", headers=LOGIN, redirects=anywhere)
    assert other.came == [("POST", "/in", b"x")]
    assert other.headers[0]["Content-Type"] == "text/plain"
    assert not {"Authorization", "X-Auth"} & set(other.headers[0])


@pytest.mark.asyncio
async def test_https_is_never_left() -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    async with (
        answering(status(202)) as weak,
        answering(status(307, Location=weak.url), tls) as peer,
        new_client(ours) as client,
    ):
        with pytest.raises(UnreachableError, match="from https"):
            await client.send("POST", peer.url, data=b"x", redirects=KeepMethod(other_origin=True))
    assert weak.came == []


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [301, 302, 303, 308])
async def test_other_redirects_are_answers(code: int) -> None:
    async with answering(to_there(code)) as peer, new_client() as client:  # type: ignore[arg-type]
        for policy in (NO_REDIRECTS, KeepMethod(other_origin=True)):
            answer = await client.send("POST", peer.url, data=b"x", redirects=policy)
            assert answer.status == code
    assert [path for _, path, _ in peer.came] == ["/in", "/in"]


@pytest.mark.asyncio
async def test_a_redirect_without_a_target_is_an_answer() -> None:
    async with answering(status(307)) as peer, new_client() as client:
        assert (await client.send("GET", peer.url)).status == 307
