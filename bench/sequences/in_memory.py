"""Messages/s of one numbered sequence in memory: the sequencer, or a bare dict-and-heap loop.

Both are given the same messages in the same groups, and hand over each message once all before it
are handed over. The floor puts them in order and drops copies, no more: it detects no gap, has no
bound, and could not resume after a crash. The product makes a checkpoint after each group and
claims it, as it does around a commit.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

import msgspec

from bench.report import Result
from instep.model.messages import MessageHeader
from instep.sequencing.sequencer import Sequencer

__all__ = ["LOADS", "arriving", "floor", "main", "product"]

GROUP_MESSAGES: Final = 500
"""Messages in one group."""
WINDOW: Final = 64
"""How far messages are shuffled."""
RESENT_AFTER: Final = 300
"""How many numbers later a lost message comes after all."""
_SEED: Final = 4
_NOW_US: Final = 1_700_000_000_000_000

Groups = list[list[MessageHeader]]


def _in_order(count: int, _rng: random.Random) -> Iterator[float]:
    return iter(range(count))


def _shuffled(count: int, rng: random.Random) -> Iterator[float]:
    return (at + rng.uniform(0, WINDOW) for at in range(count))


def _lost(count: int, rng: random.Random) -> Iterator[float]:
    return (at + (RESENT_AFTER if rng.random() < 0.1 else 0) for at in range(count))


LOADS: Final[dict[str, Callable[[int, random.Random], Iterator[float]]]] = {
    "in-order": _in_order,
    "shuffled": _shuffled,
    "lost": _lost,
}
"""Name → when each of so many numbers arrives."""


def arriving(load: str, count: int) -> Groups:
    """The messages 1…`count`, in the order of a load."""
    arrivals = list(LOADS[load](count, random.Random(_SEED)))
    numbers = sorted(range(count), key=arrivals.__getitem__)
    content = bytes(32)
    messages = [MessageHeader(number + 1, content, 1_300) for number in numbers]
    return [messages[at : at + GROUP_MESSAGES] for at in range(0, count, GROUP_MESSAGES)]


def floor(groups: Groups) -> int:
    """How many were handed over, in order."""
    next_number, held = 1, dict[int, MessageHeader]()
    ahead: list[int] = []
    delivered = 0
    for group in groups:
        deliver: list[int] = []
        for message in group:
            number = message.number
            if number == next_number:
                deliver.append(number)
                next_number += 1
                while ahead and ahead[0] == next_number:
                    deliver.append(held.pop(heappop(ahead)).number)
                    next_number += 1
            elif number > next_number and number not in held:
                held[number] = message
                heappush(ahead, number)
        delivered += len(deliver)
    return delivered


def product(groups: Groups) -> int:
    """How many were handed over, in order."""
    sequencer = Sequencer()
    delivered = 0
    for group in groups:
        outcome = sequencer.receive(group, _NOW_US)
        sequencer.committed(sequencer.checkpoint())
        delivered += len(outcome.deliver)
    return delivered


def main() -> None:
    """Put so many messages in order, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=["floor", "product"])
    parser.add_argument("--load", choices=list(LOADS), required=True)
    parser.add_argument("--messages", type=int, required=True)
    given = parser.parse_args()
    groups = arriving(given.load, given.messages)
    run = floor if given.side == "floor" else product
    gc.freeze()
    start_s = time.perf_counter()
    delivered = run(groups)
    seconds = time.perf_counter() - start_s
    if delivered != given.messages:
        raise SystemExit(f"{delivered:,} of {given.messages:,} messages were delivered")
    print(msgspec.json.encode(Result(delivered, seconds, [])).decode())


if __name__ == "__main__":
    main()
