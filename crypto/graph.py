"""Who shares masks with whom: a random circulant graph, and how many neighbours are enough.

Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure single-server aggregation with
(poly)logarithmic overhead", CCS 2020 (eprint 2020/704), section 3: instead of all pairs, every
client agrees with its neighbours in a k-regular Harary graph over a random permutation. The sum is
as safe as with all pairs unless one of two rare events happens, and it can be finished unless a
third does:

    too many corrupt neighbours    t of one client's neighbours are corrupt: they rebuild its seeds
    a graph that falls apart       honest survivors on both sides of a cut: each side's sum opens
    too few surviving neighbours   fewer than t of one client's neighbours answer

The permutation must be drawn after the corrupt clients are fixed. Where the aggregator chooses who
counts as dropped, the second event is no accident any more: `thinnest_window` is what a client
checks instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream, derive

__all__ = [
    "COMPLETE_BELOW",
    "Degree",
    "choose_degree",
    "honest_majority",
    "most_in_any",
    "neighbourhoods",
    "part_of",
    "partition",
    "thinnest_window",
]

COMPLETE_BELOW: Final = 100
"""Below so many clients a sparse graph saves little: all pairs are the default."""
_MAX_COUNT: Final = 1_000_000
_DUST: Final = 1e-9  # 0.3 x 10 is 3, whatever floating point says


@dataclass(frozen=True)
class Degree:
    """What a sparse graph needs.

    Attributes:
        neighbours: of each client, k.
        threshold: how many shares rebuild a seed, t.
        corrupt: at most so many of one client's neighbours are corrupt, but for the chance given.
        window: so many survivors among any k/2 successive clients outnumber the corrupt ones there;
            see `thinnest_window`. With all pairs: one more than there are corrupt clients.
    """

    neighbours: int
    threshold: int
    corrupt: int
    window: int


def neighbourhoods(count: int, degree: int, seed: bytes) -> list[tuple[int, ...]]:
    """Return the neighbours of clients 0 … count - 1, each tuple ascending and without itself.

    Clients stand on a circle in an order drawn from `seed`; each is joined to the degree/2 nearest
    on either side (Harary 1962), which no other graph of that degree beats in connectivity. With
    `degree` >= count - 1 everyone is joined to everyone. The relation is symmetric.

    Raises:
        OutOfRange: fewer than 2 clients, or below count - 1 a degree that is odd or under 2.
        InvalidKey: a seed of fewer than 16 bytes.
    """
    if not 2 <= count <= _MAX_COUNT:
        raise OutOfRange("A graph has between two clients and a million.")
    if degree >= count - 1:
        return [(*range(place), *range(place + 1, count)) for place in range(count)]
    order = _circle(count, degree, seed)
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    found: list[tuple[int, ...]] = [()] * count
    for place, client in enumerate(order):
        found[client] = tuple(sorted(order[(place + step) % count] for step in steps))
    return found


def thinnest_window(count: int, degree: int, seed: bytes, survivors: Collection[int]) -> int:
    """Return the fewest survivors among any degree/2 successive clients of the graph's circle.

    If every window holds an honest survivor, successive honest survivors are neighbours and their
    graph is connected, whoever chose the drop-outs. So a client that is shown a survivor list asks
    for `Degree.window` at least. With all pairs: the number of survivors.

    Raises:
        OutOfRange: as `neighbourhoods`, or a survivor that is no client.
    """
    present = set(survivors)
    if any(not 0 <= client < count for client in present):
        raise OutOfRange("A survivor is none of the graph's clients.")
    if degree >= count - 1:
        return len(present)
    row = np.array([client in present for client in _circle(count, degree, seed)], dtype=np.int64)
    half = degree // 2
    sums = np.cumsum(np.concatenate([[0], row, row[: half - 1]]))
    return int((sums[half:] - sums[:-half]).min())


@lru_cache(maxsize=8)  # every client of a simulation asks for the same one, several times a sum
def _circle(count: int, degree: int, seed: bytes) -> tuple[int, ...]:
    """Return an unbiased permutation (Fisher and Yates; Durstenfeld 1964, algorithm 235)."""
    if degree % 2 or degree < 2:
        raise OutOfRange("A graph that is not complete has an even number of neighbours.")
    return tuple(_shuffled(count, Stream(derive(seed, "graph", f"{count}"))))


def _shuffled(count: int, stream: Stream) -> list[int]:
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(stream.uniform(last + 1, 1)[0])
        order[last], order[other] = order[other], order[last]
    return order


def partition(count: int, parts: int, seed: bytes) -> list[tuple[int, ...]]:
    """Return 0 … count - 1 cut by lot into disjoint parts, each ascending, sizes apart by one.

    Raises:
        OutOfRange: no parts, or more than there are clients.
        InvalidKey: a seed of fewer than 16 bytes.
    """
    if not 1 <= parts <= count <= _MAX_COUNT:
        raise OutOfRange("Clients are cut into one part up to as many as there are clients.")
    order = _shuffled(count, Stream(derive(seed, "parts", f"{count}", f"{parts}")))
    return [tuple(sorted(order[part::parts])) for part in range(parts)]


def most_in_any(count: int, marked: int, size: int, parts: int, bits: int) -> int:
    """Return the smallest m: none of so many parts holds more than m marked, but for 2^-bits.

    The parts are drawn by lot from `count` clients and hold up to `size` each: for one part an
    exact hypergeometric tail, for all of them their number times that.
    """
    return min(marked, size, _rarely_above(count, marked, size, 2.0**-bits / parts))


def honest_majority(holders: int, corrupt: int) -> int:
    """Return the smallest threshold that no two different survivor lists can both reach.

    t > (holders + corrupt) / 2, where `holders` have shares of one client's seeds and `corrupt` of
    them may answer twice: an aggregator that tells some of the honest that the client dropped out
    and others that it did not gets fewer than t shares of one kind (O7; Bell et al., section 4).

    Raises:
        OutOfRange: fewer than one holder, or more corrupt holders than there are.
    """
    if not 0 <= corrupt <= holders or holders < 1:
        raise OutOfRange("Between none and all of a client's holders can be corrupt.")
    return max(2, (holders + corrupt) // 2 + 1)


def choose_degree(
    count: int,
    *,
    corrupt: float,
    dropped: float,
    security_bits: int = 40,
    correctness_bits: int = 20,
    lying: bool = False,
) -> Degree:
    """Return the fewest neighbours and the lowest threshold for which the rare events are rare.

    Args:
        count: clients.
        corrupt: largest fraction of them that works with the aggregator.
        dropped: largest fraction that drops out.
        security_bits: the two events that break security have at most probability 2^-this together.
        correctness_bits: the sum cannot be finished with at most probability 2^-this.
        lying: the aggregator may show different survivor lists and choose who dropped out. The
            threshold is then the `honest_majority` of a client and its neighbours (Bell et al.,
            section 4), and honest rounds pass the check of `Degree.window`.

    All tails are exact; each is multiplied by the number of clients. Below `COMPLETE_BELOW` clients
    and where no sparse graph will do, the graph is complete and nothing is left to chance.

    Raises:
        OutOfRange: impossible numbers, or fractions for which no threshold exists.
    """
    bad, lost = _parts(count, corrupt, dropped)
    if security_bits < 1 or correctness_bits < 1:
        raise OutOfRange("A chance of failure is 2^-1 or less.")
    # Two events break security and, with a liar, two keep a sum from being finished: half each.
    rare = 2.0 ** -(security_bits + 1) / count
    late = 2.0 ** -(correctness_bits + lying) / count
    for k in range(2, count - 1 if count >= COMPLETE_BELOW else 0, 2):
        if _log2_cut(count, k, bad + lost) > -(security_bits + 1):
            continue
        # As seen by one client: its neighbours are k of the count - 1 others.
        most = _rarely_above(count - 1, bad, k, rare)
        if lying and 2 * most > k:
            continue  # neighbours' lists might differ; see `protocols.keys.groups.Group.voters`
        t = max(2, honest_majority(k + 1, most) if lying else most + 1)
        if t > k or _below(count - 1, count - 1 - lost, k, t) > late:
            continue
        window = _rarely_above(count, bad, k // 2, rare) + 1
        if not lying or _below(count, count - lost, k // 2, window) <= late:
            return Degree(k, t, most, window)
    t = max(2, honest_majority(count, bad) if lying else bad + 1)
    if t > count - 1 - lost:
        raise OutOfRange("So many corrupt clients and drop-outs leave no threshold; expect fewer.")
    return Degree(count - 1, t, bad, bad + 1)


def part_of(count: int, share: float) -> int:
    """Return how many clients a share of them is, rounded down."""
    return math.floor(share * count + _DUST)


def _parts(count: int, corrupt: float, dropped: float) -> tuple[int, int]:
    if not 2 <= count <= _MAX_COUNT or not (0 <= corrupt < 1 and 0 <= dropped < 1):
        raise OutOfRange("A graph has 2 clients up to a million; fractions lie in [0, 1).")
    bad, lost = part_of(count, corrupt), part_of(count, dropped)
    if bad + lost >= count:
        raise OutOfRange("Corrupt clients and drop-outs leave nobody; expect fewer.")
    return bad, lost


def _rarely_above(population: int, marked: int, drawn: int, chance: float) -> int:
    """Return the smallest m with P[X > m] <= chance, X the marked ones among those drawn."""
    # Summed from the far end, so that small tails keep their digits.
    tails = np.cumsum(_mass(population, marked, drawn)[::-1])[::-1]  # P[X >= 0], P[X >= 1], …
    return int(np.count_nonzero(tails > chance)) - 1


def _below(population: int, marked: int, drawn: int, threshold: int) -> float:
    """Return P[X < threshold] for the same X."""
    return float(np.sum(_mass(population, marked, drawn)[:threshold]))


def _mass(population: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Return P[X = m] for m from 0 to `drawn`, by logarithms.

    The formula and its order are those of `scipy.stats.hypergeom.logpmf`, so the digits are too;
    all of `scipy.stats` takes most of a second to load.
    """
    from scipy.special import betaln

    rest = population - marked
    mass = np.zeros(drawn + 1)
    m = np.arange(max(0, drawn - rest), min(marked, drawn) + 1)
    ways: Any = (
        betaln(marked + 1, 1) + betaln(rest + 1, 1) + betaln(population - drawn + 1, drawn + 1)
    )
    ways = ways - betaln(m + 1, marked - m + 1) - betaln(drawn - m + 1, rest - drawn + m + 1)
    mass[m] = np.exp(ways - betaln(population + 1, 1))
    return mass


def _log2_cut(count: int, degree: int, removed: int) -> float:
    """Return log2 of a bound on the chance that the graph falls apart without `removed` clients.

    A circulant falls apart only if degree/2 successive clients are removed in two separate places.
    There are count (count - degree - 1) / 2 such pairs of places, each entirely removed with the
    chance C(removed, degree) / C(count, degree).
    """
    if removed < degree:
        return -math.inf
    places = count * (count - degree - 1) / 2
    ways = _log_binomial(removed, degree) - _log_binomial(count, degree)
    return math.log2(places) + ways / math.log(2)


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
