"""Memory and disk of a receiver with many sequences, each with a record of its numbers.

Message 1 of each sequence is delivered, 2 is cancelled, 3 was filled, and 5 waits behind a gap.
`python -m bench.sequences.memory --sequences 100000` prints how memory grows with their count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from instep import Message, Receiver, SequencerSettings
from instep.ports import Intake
from instep.sequencing import Cancel, Fill, GapPolicy, SequenceEffect
from instep_sql import SqlStore

__all__ = ["main", "measure"]

_AT_ONCE: Final = 500
_PEERS: Final = 100
_PAGE_BYTES: Final = 4096


class _Listener:
    kind = "bench"
    opens_implicitly = True
    address = "bench://"

    def __init__(self) -> None:
        self.intake: asyncio.Future[Intake] = asyncio.get_running_loop().create_future()

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - one for all
        return SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=86_400)

    def peer_of(self, scope: str) -> str:
        return scope.partition(" ")[0]

    async def serve(self, intake: Intake) -> None:
        self.intake.set_result(intake)
        await asyncio.Event().wait()

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        raise AssertionError(f"{scope} owes {effect}")

    async def close(self) -> None:
        pass


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _stored_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def _fill(intake: Intake, place: int) -> None:
    scope = f"peer-{place % _PEERS} sequence-{place}"
    for number in (1, 5):
        await intake.receive(
            Message(
                scope=scope,
                number=number,
                id=f"{number}",
                body=b"x" * 100,
                received_at_us=time.time_ns() // 1_000,
            )
        )
    await intake.apply(scope, [Cancel([(2, 2)]), Fill([(3, 3)])])


async def measure(sequences: int, steps: int, folder: Path) -> Sequence[tuple[int, int, int]]:
    """Sequences, resident bytes and bytes of the database, at each of so many steps."""
    found: list[tuple[int, int, int]] = []
    path = folder / "store.db"
    store, listener = SqlStore(f"sqlite:///{path}"), _Listener()
    async with Receiver("bench", listener, store):
        intake = await listener.intake
        for begin in range(0, sequences, _AT_ONCE):
            if begin % max(_AT_ONCE, sequences // steps) == 0:
                found.append((begin, _resident_bytes(), _stored_bytes(folder)))
                print("{:>9,} sequences: {:>13,} B of memory, {:>13,} B of disk".format(*found[-1]))
            end = min(sequences, begin + _AT_ONCE)
            await asyncio.gather(*(_fill(intake, place) for place in range(begin, end)))
        found.append((sequences, _resident_bytes(), _stored_bytes(folder)))
        print("{:>9,} sequences: {:>13,} B of memory, {:>13,} B of disk".format(*found[-1]))
        async with SqlStore(f"sqlite:///{path}") as other:
            await other.open("another")
            scope = f"peer-{(sequences - 1) % _PEERS} sequence-{sequences - 1}"
            record = await other.reader.numbers("bench", scope)
            print(f"record of the last: {record}")
    return found


def main() -> None:
    """Measure it, and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sequences", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="instep-bench-") as folder:
        asyncio.run(measure(given.sequences, given.steps, Path(folder)))


if __name__ == "__main__":
    main()
