"""Sample order: counter-based, stateless, with random access.

Position p of the stream is sample `permutation(seed, epoch = p // n)[p % n]`. Each position is computed independently,
so a resumed run, another micro-batch split or another number of devices sees exactly the same samples.

The permutation is a Feistel network of 12 rounds over the digits (left, right) of the position in mixed radix a × b,
with a·b the smallest such product ≥ n, and cycle walking for the few results ≥ n. Sources: Luby & Rackoff 1988 (Feistel
networks are permutations, and pseudorandom for pseudorandom rounds); Black & Rogaway 2002, "Ciphers with arbitrary
finite domains" (mixed radix and cycle walking); round function: the SplitMix64 finaliser of Steele, Lea & Flood 2014.

Limits: good enough for shuffling, but not a cipher. Only some of the n! orders can occur, and for fewer than ten
samples some orders are a few per cent more likely than others.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment, 2⁶⁴ divided by the golden ratio, odd
_ROUNDS = 12  # at 8, the 120 orders of 5 samples are visibly unequally likely
_Words = npt.NDArray[np.uint64]


class SampleOrder:
    """Maps positions of an infinite stream to dataset indices; each epoch is a seeded permutation.

    Raises ValueError if `samples` is not within 1 … 2⁶².
    """

    def __init__(self, samples: int, seed: int) -> None:
        if not 1 <= samples <= 2**62:
            raise ValueError(f"samples must be within 1 to 2^62, got {samples}")
        self.samples = samples
        self.seed = seed
        self._left_radix = math.isqrt(samples - 1) + 1
        self._right_radix = -(-samples // self._left_radix)

    def indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Dataset indices at stream positions [start, stop), which may span several epochs.

        Raises ValueError unless 0 ≤ start ≤ stop.
        """
        if start < 0 or stop < start:
            raise ValueError(f"stream positions must satisfy 0 ≤ start ≤ stop, got [{start}, {stop})")
        if start == stop:
            return np.empty(0, np.int64)
        first, last = start // self.samples, (stop - 1) // self.samples
        positions = np.arange(start - first * self.samples, stop - first * self.samples, dtype=np.uint64)
        if first == last:
            return self._permute(positions, self._epoch_keys(first)[:, None])
        epochs, positions = np.divmod(positions, np.uint64(self.samples))
        keys = np.stack([self._epoch_keys(epoch) for epoch in range(first, last + 1)], axis=1)
        return self._permute(positions, keys[:, epochs.astype(np.int64)])

    def _permute(self, positions: _Words, keys: _Words) -> npt.NDArray[np.int64]:
        """Cycle walking: results outside 0 … n−1 are permuted again until they fall inside.

        `keys` has one row per round, and either one column or one column per position.
        """
        walked = self._network(positions, keys)
        outside = np.flatnonzero(walked >= self.samples)
        while outside.size:
            own = keys[:, outside] if keys.shape[1] > 1 else keys
            walked[outside] = self._network(walked[outside], own)
            outside = outside[walked[outside] >= self.samples]
        return walked.astype(np.int64)

    def _network(self, positions: _Words, keys: _Words) -> _Words:
        left_radix, right_radix = np.uint64(self._left_radix), np.uint64(self._right_radix)
        right, left = np.divmod(positions, left_radix)
        for round_, key in enumerate(keys):
            if round_ % 2 == 0:
                left = _add_modulo(left, _below(_mix(right + key), left_radix), left_radix)
            else:
                right = _add_modulo(right, _below(_mix(left + key), right_radix), right_radix)
        return left + right * left_radix

    def _epoch_keys(self, epoch: int) -> _Words:
        name = f"batchlab order 1/{self.seed}/{epoch}".encode()
        return np.frombuffer(hashlib.shake_128(name).digest(8 * _ROUNDS), dtype="<u8").astype(np.uint64)


class RandomPositions:
    """Maps positions of an infinite stream to independent, uniformly random dataset indices (with replacement).

    The index is a hash of (seed, position) alone: two rounds of the SplitMix64 finaliser over the position, keyed by
    the seed, modulo `samples`. The modulo makes small indices more likely by at most samples / 2⁶⁴. Raises ValueError
    if `samples` is not within 1 … 2⁶².
    """

    def __init__(self, samples: int, seed: int) -> None:
        if not 1 <= samples <= 2**62:
            raise ValueError(f"samples must be within 1 to 2^62, got {samples}")
        self.samples = samples
        self.seed = seed
        name = f"batchlab positions 1/{seed}".encode()
        self._keys = np.frombuffer(hashlib.shake_128(name).digest(16), dtype="<u8").astype(np.uint64)

    def indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Dataset indices at stream positions [start, stop). Raises ValueError unless 0 ≤ start ≤ stop."""
        if start < 0 or stop < start:
            raise ValueError(f"stream positions must satisfy 0 ≤ start ≤ stop, got [{start}, {stop})")
        words = np.arange(start, stop, dtype=np.uint64)
        for key in self._keys:
            words = _mix(words * _GOLDEN + key)
        return (words % np.uint64(self.samples)).astype(np.int64)


def _mix(words: _Words) -> _Words:
    """SplitMix64's finaliser: a bijection of 64-bit words in which every input bit affects every output bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _below(words: _Words, radix: np.uint64) -> _Words:
    """Map words to 0 … radix−1 by multiplication (radix < 2³²), which is cheaper than a division."""
    return ((words >> np.uint64(32)) * radix) >> np.uint64(32)


def _add_modulo(digits: _Words, shifts: _Words, radix: np.uint64) -> _Words:
    total = digits + shifts
    total[total >= radix] -= radix
    return total
