"""Alarms live in a browser, with FastAPI: server-sent events and a WebSocket, resumed by cursor.

    pip install fastapi uvicorn websockets
    python examples/live_fastapi.py [URL] [--store sqlite:///live.db] [--port 8090]

It tells the same as `live_aiohttp.py`, from which the page and the places are.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Header, WebSocket, WebSocketDisconnect
from fastapi.responses import HTMLResponse, StreamingResponse
from live_aiohttp import ANEW, PAGE, changes_after, told
from simulation import run, store_options

from instep import Consumer
from instep_sql import SqlReader, SqlStore
from instep_tapi import TapiSource, read_options


async def send(browser: WebSocket, reader: SqlReader, after: str) -> None:
    """Send the changes after a place, each with its own."""
    try:
        async for change in changes_after(reader, after):
            if change is not None:
                await browser.send_text(f'{{"place":"{change.place}",{told(change)[1:]}')
    except ANEW:
        await browser.close(4000, "reload")


def application(reader: SqlReader) -> FastAPI:
    """What serves the page and both kinds of events."""
    app = FastAPI()

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(PAGE)

    @app.get("/events")
    async def events(
        last_event_id: Annotated[str, Header()] = "", after: str = ""
    ) -> StreamingResponse:
        async def stream() -> AsyncIterator[str]:
            try:
                async for change in changes_after(reader, last_event_id or after):
                    if change is None:
                        yield ": alive\n\n"
                    else:
                        yield f"id: {change.place}\ndata: {told(change)}\n\n"
            except ANEW:
                # The browser reads the alarms anew, and goes on without a place.
                yield "event: reload\nid: \ndata: {}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    @app.websocket("/socket")
    async def socket(browser: WebSocket, after: str = "") -> None:
        await browser.accept()
        sending = asyncio.ensure_future(send(browser, reader, after))
        try:
            while True:  # a browser says nothing; this ends when it closes
                await browser.receive_text()
        except WebSocketDisconnect:
            pass
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    return app


async def main(endpoint: str, url: str, port: int, seconds: float) -> None:
    source = TapiSource(read_options({"endpoints": [endpoint]}, "live_fastapi.py"))
    store = SqlStore(url, journal="bodies")
    async with Consumer("live", source, store) as consumer:
        await consumer.aligned()
        config = uvicorn.Config(
            application(store.reader), port=port, log_level="warning", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        address = server.servers[0].sockets[0].getsockname()
        print(f"open http://{address[0]}:{address[1]} to see alarms for {seconds:g} s", flush=True)
        await asyncio.sleep(seconds)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    parser = store_options(__doc__)
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0: any free one")
    parser.add_argument("--seconds", type=float, default=3, help="how long it serves")
    run(main, parser)
