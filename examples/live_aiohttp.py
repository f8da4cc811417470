"""Alarms live in a browser, with aiohttp: server-sent events and a WebSocket, resumed by cursor.

    python examples/live_aiohttp.py [URL] [--store sqlite:///live.db] [--port 8090]

Open http://127.0.0.1:8090. Each event has the cursor of its change as its id. A browser whose
connection broke sends the last one back (`Last-Event-ID`), and misses nothing. All browsers share
one look at the journal.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import lru_cache

from aiohttp import web
from simulation import run, store_options

from instep import (
    Change,
    ChangesTrimmedError,
    ConfigurationError,
    Consumer,
    JournalDivergedError,
)
from instep_sql import SqlReader, SqlStore
from instep_tapi import TapiSource, read_options

READER = web.AppKey("reader", SqlReader)
HEARTBEAT_S = 15.0
ANEW = (ChangesTrimmedError, ConfigurationError, JournalDivergedError)
PAGE = """<!doctype html><title>Alarms</title><h1>Alarms, live</h1><ul id="list"></ul><script>
new EventSource("/events").onmessage = (event) => {
  const change = JSON.parse(event.data), item = document.createElement("li")
  item.textContent = `${change.what} ${change.key}`
  document.getElementById("list").prepend(item)
}
</script>"""


@lru_cache(maxsize=1_000)  # one encoding serves all browsers
def told(change: Change) -> str:
    """What a browser is told of a change. An entity that has ended has no body."""
    entity = json.loads(change.body) if change.body else None
    return json.dumps({"what": change.change.value, "key": change.key, "entity": entity})


async def changes_after(reader: SqlReader, place: str) -> AsyncIterator[Change | None]:
    """The changes after a place, or from now on; None where nothing came for a while, or
    where the journal does not reach back so far, with the newest change following.
    """
    place = place or (await reader.journal_end()).place
    batches = aiter(reader.subscribe(place, classes=["CONDITION_DETECTOR"]))
    waiting = asyncio.ensure_future(anext(batches))
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_S)
            if not done:
                yield None
                continue
            for change in waiting.result():
                yield change
            waiting = asyncio.ensure_future(anext(batches))
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await waiting


async def events(request: web.Request) -> web.StreamResponse:
    """Server-sent events."""
    response = web.StreamResponse(headers={"Cache-Control": "no-store"})
    response.content_type = "text/event-stream"
    await response.prepare(request)
    place = request.headers.get("Last-Event-ID", request.query.get("after", ""))
    try:
        async for change in changes_after(request.app[READER], place):
            text = f"id: {change.place}\ndata: {told(change)}\n\n" if change else ": alive\n\n"
            await response.write(text.encode())
    except ANEW:
        # The browser reads the alarms anew, and goes on without a place.
        await response.write(b"event: reload\nid: \ndata: {}\n\n")
    return response


async def socket(request: web.Request) -> web.StreamResponse:
    """The same over a WebSocket: `/socket?after=PLACE`, each message with its place."""
    response = web.WebSocketResponse(heartbeat=HEARTBEAT_S)
    await response.prepare(request)

    async def send() -> None:
        try:
            async for change in changes_after(request.app[READER], request.query.get("after", "")):
                if change is not None:
                    await response.send_str(f'{{"place":"{change.place}",{told(change)[1:]}')
        except ANEW:
            await response.close(code=4000, message=b"reload")

    sending = asyncio.ensure_future(send())
    try:
        async for _ in response:  # a browser says nothing; this ends when it closes
            pass
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await sending
    return response


async def page(_request: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


def application(reader: SqlReader) -> web.Application:
    """What serves the page and both kinds of events."""
    app = web.Application()
    app[READER] = reader
    app.add_routes([web.get("/", page), web.get("/events", events), web.get("/socket", socket)])
    return app


async def main(endpoint: str, url: str, port: int, seconds: float) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "live_aiohttp.py"))
    store = SqlStore(url, journal="bodies")
    async with Consumer("live", source, store) as consumer:
        await consumer.aligned()
        runner = web.AppRunner(application(store.reader), shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        print(f"open {site.name} to see alarms for {seconds:g} s", flush=True)
        await asyncio.sleep(seconds)
        await runner.cleanup()


if __name__ == "__main__":
    parser = store_options(__doc__)
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0: any free one")
    parser.add_argument("--seconds", type=float, default=3, help="how long it serves")
    run(main, parser)
