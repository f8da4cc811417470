"""Changes data at random, fast: what the long rounds feed to the targets."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["mutated"]

_MOST_CHANGES = 4


def mutated(rng: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A seed with some of its parts cut out, doubled, flipped, or replaced by words or bytes."""
    data = rng.choice(seeds)
    for _ in range(rng.randint(0, _MOST_CHANGES)):
        first = rng.randint(0, len(data))
        last = min(len(data), first + int(rng.expovariate(0.1)))
        if rng.random() < 0.1:
            first, last = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        match rng.randrange(5):
            case 0:
                put = b""
            case 1:
                put = data[first:last] * 2
            case 2:
                put = rng.choice(words)
            case 3:
                put = rng.randbytes(rng.randint(1, 8))
            case _:
                put = bytes(byte ^ (1 << rng.randrange(8)) for byte in data[first:last])
        data = data[:first] + put + data[last:]
    return data
