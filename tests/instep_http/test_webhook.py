"""Changes posted to a URL: in order, at least once, in bounded requests, to that URL only."""

from __future__ import annotations

import asyncio
import json
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from instep import ConsumerSettings
from instep.errors import ConfigurationError, SourceError
from instep.runtime.subscription import Subscription
from instep_http.webhook import Webhook
from tests.instep_http.client_kit import Answers, Peer, answering, status
from tests.instep_sql.store_kit import create_update, end_record, stage

pytestmark = pytest.mark.asyncio

QUICK = ConsumerSettings(reconnect_initial_s=0.001, reconnect_max_s=0.002, reconnect_attempts=3)


def posted(peer: Peer) -> list[list[dict[str, Any]]]:
    """The changes of each request."""
    return [json.loads(body)["changes"] for _, _, body in peer.came]


async def post(answers: Answers, database: str, **options: Any) -> tuple[Peer, SourceError | None]:
    """Post the changes of three entities, and of the end of one; returns how it ended, too."""
    ended: SourceError | None = None
    async with answering(answers) as peer, stage(database, journal="previous") as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 4)])
        await at.commit(create_update("k1", 8), end_record("k2", 9))
        async with Webhook(peer.url, headers={"Authorization": "Bearer s"}, **options) as hook:
            assert "Bearer" not in repr(hook)
            subscription = Subscription(at.store.reader, follow=False)
            try:
                await subscription.run(hook, settings=QUICK)
            except SourceError as error:
                ended = error
    assert "Bearer" not in str(ended)
    return peer, ended


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


async def test_each_change_in_order_with_its_bodies(database: str) -> None:
    peer, _ = await post(status(204), database)
    (changes,) = posted(peer)
    assert [(one["cursor"], one["key"], one["change"]) for one in changes] == [
        (1, "k1", "created"),
        (2, "k2", "created"),
        (3, "k3", "created"),
        (4, "k1", "updated"),
        (5, "k2", "deleted"),
    ]
    assert (changes[3]["previous"], changes[3]["body"]) == ({"at": 1}, {"at": 8})
    assert (changes[0]["consumer"], changes[0]["stream"], changes[0]["class"]) == (
        "east",
        "s1",
        "NODE",
    )
    # The receiver knows a change by both.
    assert len({one["epoch"] for one in changes}) == 1
    assert changes[0]["epoch"]
    assert peer.headers[0]["Authorization"] == "Bearer s"
    assert peer.headers[0]["Content-Type"] == "application/json"


async def test_a_large_batch_is_posted_in_several(database: str) -> None:
    peer, _ = await post(status(200), database, max_bytes=300)
    requests = posted(peer)
    assert len(requests) > 1
    assert [one["cursor"] for changes in requests for one in changes] == [1, 2, 3, 4, 5]


async def test_one_that_asks_to_try_later_gets_it_again(database: str) -> None:
    peer, ended = await post(status(503, 429, 200), database)
    assert [len(changes) for changes in posted(peer)] == [5, 5, 5]
    assert ended is None


NOW_S = 1_700_000_000.0


@pytest.mark.parametrize(
    ("refusal", "stated", "waited_s"),
    [
        (429, "7", 7.0),
        (503, formatdate(NOW_S + 20, usegmt=True), 20.0),
        (500, "999999999", 3_600.0),
        (403, formatdate(NOW_S + 1e6, usegmt=True), 3_600.0),
        (413, "1", 1.0),
    ],
)
async def test_one_that_says_when_to_try_again_is_left_alone_until_then(
    refusal: int, stated: str, waited_s: float, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = note_waits(monkeypatch)

    def answers(_: web.BaseRequest, count: int) -> web.Response:
        headers = {"Retry-After": stated}
        return (
            web.Response(status=200) if count > 1 else web.Response(status=refusal, headers=headers)
        )

    peer, ended = await post(answers, database, now=lambda: NOW_S)
    assert ended is None
    assert [len(changes) for changes in posted(peer)] == [5, 5]
    assert max(waits) == waited_s


@pytest.mark.parametrize(
    "stated", ["0", "-5", "soon", "1e9", "", formatdate(NOW_S - 9, usegmt=True)]
)
async def test_what_is_no_time_to_come_changes_nothing(
    stated: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = note_waits(monkeypatch)
    headers = {"Retry-After": stated}
    peer, ended = await post(
        lambda _, count: web.Response(status=503 if count == 1 else 400, headers=headers),
        database,
        now=lambda: NOW_S,
    )
    assert (len(peer.came), ended is not None) == (2, True)
    assert max(waits) <= QUICK.reconnect_max_s


def note_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of this process, which then are none."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float, result: Any = None) -> Any:
        waits.append(delay_s)
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", note)
    return waits


@pytest.mark.parametrize(("found", "requests"), [(400, 1), (500, 3)])
async def test_one_that_refuses_it_ends_the_run(found: int, requests: int, database: str) -> None:
    peer, ended = await post(status(found), database)
    assert len(peer.came) == requests
    assert ended is not None
    assert ended.data["status"] == found


async def test_no_redirect_is_followed(database: str) -> None:
    async with answering(status(200)) as elsewhere:
        peer, ended = await post(status(307, Location=elsewhere.url), database)
    assert (len(peer.came), elsewhere.came) == (1, [])
    assert ended is not None
    assert ended.data["status"] == 307


@pytest.mark.parametrize("url", ["ftp://there/x", "no url", "http://"])
async def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="Webhook"):
        Webhook(url)


async def test_how_fresh_the_streams_are_is_posted(database: str) -> None:
    async with answering(status(204)) as peer, stage(database) as at, Webhook(peer.url) as hook:
        await hook.post_freshness(await at.store.reader.freshness())
    ((_, _, body),) = peer.came
    assert json.loads(body) == {
        "changes": [],
        "streams": [
            {
                "consumer": "east",
                "stream": "s1",
                "state": "stale",
                "text": "unaligned, but nobody says that it is followed",
                "heard_s": None,
            }
        ],
    }
