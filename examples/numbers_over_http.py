"""Numbered messages behind an aiohttp application of yours, each booked once in order.

    python examples/numbers_over_http.py

The application has a route of its own; the sequencer is behind it. 202 is answered after the
commit. A client sends out of order, and everything twice.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web
from own_inbox import OwnInbox, book, booked
from simulation import described, temporary
from sqlalchemy import create_engine

from instep.sequencing import GapPolicy, Refusal, SequencerSettings

SETTINGS = SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=60.0, gap_repeat_s=60.0)
STATUS: Final = {"accepted": 202, "copy": 202, "changed": 409}
AGAIN: Final = {Refusal.FULL.value, Refusal.TOO_FAR_AHEAD.value}
INBOX = web.AppKey("inbox", OwnInbox)
ONE_AT_A_TIME = web.AppKey("one_at_a_time", asyncio.Lock)


async def receive(request: web.Request) -> web.Response:
    scope, number = request.match_info["lot"], int(request.match_info["number"])
    body = await request.read()
    async with request.app[ONE_AT_A_TIME]:
        outcome = await asyncio.to_thread(request.app[INBOX].receive, scope, number, body)
    status = STATUS.get(outcome, 503 if outcome in AGAIN else 410)
    return web.json_response({"outcome": outcome}, status=status)


async def ticking(app: web.Application) -> AsyncIterator[None]:
    """Call `tick` in time, as long as the application runs."""

    async def tick() -> None:
        while True:
            async with app[ONE_AT_A_TIME]:
                wait_s = await asyncio.to_thread(app[INBOX].tick)
            await asyncio.sleep(wait_s)

    task = asyncio.create_task(tick())
    yield
    task.cancel()
    await asyncio.wait({task})


def application(database: str) -> web.Application:
    app = web.Application()
    app[INBOX] = OwnInbox(create_engine(database), book, SETTINGS)
    app[ONE_AT_A_TIME] = asyncio.Lock()
    app.cleanup_ctx.append(ticking)
    app.router.add_post(r"/lots/{lot}/{number:\d+}", receive)
    return app


async def main(database: str) -> None:
    runner = web.AppRunner(application(database))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(f"http://{host}:{port}") as client:
            for number in (2, 2, 1, 1, 3, 3):
                body = json.dumps({"amount": 100 * number})
                async with client.post(f"/lots/a/{number}", data=body) as answer:
                    told = await answer.json()
                    print(f"{number}: {answer.status} {told['outcome']}", flush=True)
    finally:
        await runner.cleanup()
    print("\n".join(["booked:", *booked(create_engine(database))]))


if __name__ == "__main__":
    described(__doc__).parse_args()
    asyncio.run(main(f"sqlite:///{temporary('own.db')}"))
