"""Models whose hidden units are traps, each for one record of which a few words are known.

A unit of a graph network's first layer sees the row that the layer makes of a record: its own
features and its neighbours', each with a weight. Where the unit reads a few rare words only and its
bias takes off nearly all that such words usually give, it is silent for almost everybody. Its
gradient is the sum of what woke it: the row of the record for which it is not silent, times a
factor.

The factor is made the same for all records. All units push one class up and all others down, and
the last bias makes the model sure of that class: every record of another class pulls back with the
same force, and a unit that was woken is asleep after one step. What the units add to the model's
answer is kept far below one, so that they do not change it, whatever force they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.span import read_words
from audits.attacks._shared.material import Array, Bags, Exposure, Layers, Replica

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

_SURE = 30.0  # of the last bias: all other classes together have a share of e^-30
_QUIET = 0.01  # what all that a unit adds to the model's answer is below
_FORCE = 1e3  # from which on: weaker units are as quiet, so that no weight decay is seen of them
_ROOM = 32.0  # how far below the clip a usual word of a usual record is to stand
_HIGH = 0.95  # of what the known words of a usual record give: what a bias takes off
_EPSILON = 1e-8  # torch's default in Adam and AdamW
_LINEAR = 0.15  # of it: how large a gradient is made where steps are divided by its size


@dataclass(frozen=True, repr=False)
class Target:
    """One record that an attacker is after, and what is known of it.

    Attributes:
        client: whose it is; the attacker does not know.
        known: (k,), numbers of the words that the attacker knows.
        words: (m,), numbers of all its words.
    """

    client: str
    known: Numbers
    words: Numbers


def force_of(replica: Replica, usual: float, records: float) -> float:
    """Return how hard units should push: words then stand well above the grid and below the clip.

    Args:
        replica: the run.
        usual: what one word of a usual record weighs in its own row.
        records: on which a usual client trains.
    """
    if replica.optimiser != "sgd":  # steps of one size, but where gradients are next to nothing
        return _LINEAR * _EPSILON * records / usual
    said = 1.0 if replica.weighted else 1.0 / records
    return replica.largest / (_ROOM * replica.lr * said * usual)


def crafted(
    layers: Layers,
    size: int,
    targets: Sequence[Target],
    popularity: Array,
    *,
    usual: float,
    force: float,
    quiet: float | None = None,
) -> Array:
    """Return a model of traps, one unit for each target and the others without any weight, (d,).

    Args:
        layers: where the parts lie; first and last layer with their biases.
        size: d.
        targets: not more than there are hidden units.
        popularity: (F,), how many records hold each word: a rarer word says more.
        usual: see :func:`force_of`.
        force: of the last layer, see :func:`force_of`.
        quiet: what a known word weighs in the first; None: as little as leaves the answer alone.
    """
    places = (layers.first, layers.first_bias, layers.last_weight, layers.last_bias)
    if any(place is None for place in places):
        raise ValueError("a trap needs two layers with biases; ask only of models that have them")
    first, bias, last, answer = (np.zeros(place[1]) for place in places if place is not None)
    quiet = _QUIET / max(force, _FORCE) if quiet is None else quiet
    for unit, target in enumerate(targets):
        weight = 1.0 / np.maximum(popularity[target.known], 1.0)
        weight *= target.known.size / weight.sum()
        first[target.known, unit] = quiet * weight
        bias[unit] = -_HIGH * quiet * target.known.size * usual
        last[unit] = -force
        last[unit, -1] = force
    answer[-1] = _SURE
    found = np.zeros(size)
    for place, part in zip(places, (first, bias, last, answer), strict=True):
        if place is not None:
            found[place[0]] = part.ravel()
    return found


def moved(start: Floats, goal: Array, *, norm: str, bound: float) -> Floats:
    """Return how far from `start` a model gets towards `goal` within a bound on its move, (d,).

    Args:
        start: (d,).
        goal: (d,).
        norm: ``linf`` bounds every weight, ``l2`` all of them together.
        bound: of the whole move.
    """
    way = goal - start.astype(np.float64)
    if norm == "l2":
        way *= min(1.0, bound / max(float(np.linalg.norm(way)), 1e-300))
    else:
        way = np.clip(way, -bound, bound)
    found: Floats = (start + way).astype(np.float32)
    return found


def trap_of(change: Array, layers: Layers, unit: int) -> tuple[Array, float]:
    """Return what a change says of one unit: its words, (F,), and its bias."""
    if layers.first is None or layers.first_bias is None:
        raise ValueError("a trap needs two layers with biases; ask only of models that have them")
    column = layers.part(change, layers.first)[:, unit]
    return column, float(layers.part(change, layers.first_bias)[unit])


# --- What an attacker with traps knows of the records that he is after, and what a guess is worth
# ---

KNOWN = 3
"""Words of a record that the attacker knows: those that fewest records have."""
_USUAL = 0.6  # quantile of records that traps are set for: higher, and fewer others wake them
_UNKNOWN = 2  # words beside them, at least, or there is nothing to read


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Stolen:
    """How good the words are that an attacker names, a number for each target.

    Attributes:
        whole: 1.0 where exactly the record's words are named.
        f1, recall, precision: of the words that he did not know.
        read: whether anything was read; elsewhere he names his guess.
    """

    whole: Array
    f1: Array
    recall: Array
    precision: Array
    read: Bools

    @classmethod
    def of(
        cls,
        targets: Sequence[Target],
        named: Sequence[Numbers | None],
        guesses: Sequence[Numbers],
    ) -> Stolen:
        """Score what is named; where that is None, the guess."""
        scores = []
        for target, words, guess in zip(targets, named, guesses, strict=True):
            said = set((guess if words is None else words).tolist()) - set(target.known.tolist())
            true = set(target.words.tolist()) - set(target.known.tolist())
            right = len(said & true)
            recall, precision = right / len(true), right / max(len(said), 1)
            f1 = 2 * right / (len(true) + len(said))
            scores.append((float(said == true), f1, recall, precision, float(words is not None)))
        whole, both, recalls, precisions, read = np.array(scores).T
        return cls(whole, both, recalls, precisions, read > 0)


@dataclass(frozen=True, repr=False)
class Known:
    """What the attacker knows, and what he can name without any message.

    Attributes:
        volleys: the records that he is after with each model, one for each hidden unit at most.
        popularity: (F,), records that hold each word.
        usual: what one word of a usual record weighs in its own row.
        records: on which a usual client trains.
        named: per target, the words that he names where he reads nothing.
        guesses: how good each way to guess is; the second is the one of `named`.
    """

    volleys: tuple[tuple[Target, ...], ...]
    popularity: Array
    usual: float
    records: float
    named: tuple[Numbers, ...]
    guesses: tuple[Stolen, ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        """All records that he is after."""
        return tuple(target for volley in self.volleys for target in volley)

    @classmethod
    def of(cls, replica: Replica, rng: np.random.Generator, volleys: int) -> Known | None:
        """Draw records on which clients train; None where two clients have none to read."""
        bags = list(replica.bags.values())
        counts = [np.bincount(b.table.indices, minlength=b.table.shape[1]) for b in bags]
        popularity = np.sum(counts, axis=0).astype(np.float64)
        hidden = replica.layers.first[1][1] if replica.layers.first is not None else 0
        targets = _targets(replica.bags, popularity, rng, hidden * volleys)
        if len({target.client for target in targets}) < 2:  # a null control needs both
            return None
        plain, beside = _guesses(bags, popularity, targets)
        nothing = [None] * len(targets)
        weighs = np.concatenate([_own_weights(bag) for bag in bags])
        return cls(
            volleys=tuple(targets[n : n + hidden] for n in range(0, len(targets), hidden)),
            popularity=popularity,
            usual=float(np.quantile(weighs, _USUAL)),
            records=weighs.size / sum(1 for bag in bags if bag.train.any()),
            named=beside,
            guesses=tuple(Stolen.of(targets, nothing, guess) for guess in (plain, beside)),
        )


def _own_weights(bag: Bags) -> Array:
    """Return, per training record, what one of its words weighs in its own row."""
    table = bag.table[bag.train]
    words = np.maximum(np.diff(table.indptr), 1)
    weighs: Array = bag.own[bag.train] * np.asarray(table.sum(axis=1)).ravel() / words
    return weighs


def _targets(
    bags: Mapping[str, Bags], popularity: Array, rng: np.random.Generator, most: int
) -> tuple[Target, ...]:
    records: list[tuple[str, Numbers]] = []
    for client, bag in sorted(bags.items()):
        rows = (bag.table[[node]].indices for node in np.flatnonzero(bag.train))
        records += [(client, np.unique(row).astype(np.int64)) for row in rows]
    records = [one for one in records if one[1].size >= KNOWN + _UNKNOWN]
    drawn = [records[n] for n in rng.permutation(len(records))[:most]]
    return tuple(
        Target(client, words[np.argsort(popularity[words], kind="stable")[:KNOWN]], words)
        for client, words in drawn
    )


def _guesses(
    bags: Sequence[Bags], popularity: Array, targets: Sequence[Target]
) -> tuple[tuple[Numbers, ...], tuple[Numbers, ...]]:
    """Return the most popular words of all records, and of those that hold a known word."""
    tables = [bag.table for bag in bags]
    sizes = np.concatenate([np.diff(table.indptr) for table in tables])
    many = max(1, int(np.median(sizes)) - KNOWN)
    first, second = [], []
    for target in targets:
        near = np.zeros_like(popularity)
        for table in tables:
            holding = table[:, target.known].sum(axis=1) > 0
            near += np.bincount(table[holding].indices, minlength=near.size)
        # The record itself is no stranger to whoever counts; it says nothing to the attacker.
        near[target.words] -= 1.0
        scores = popularity / (popularity.max() + 1.0)
        first.append(_most(scores, target.known, many))
        second.append(_most(near + scores, target.known, many))
    return tuple(first), tuple(second)


def _most(scores: Array, known: Numbers, many: int) -> Numbers:
    scores = scores.copy()
    scores[known] = -np.inf
    return np.concatenate([known, np.argsort(-scores, kind="stable")[:many]])


# --- What a crafted model brings back of the records that its traps are for ---

_ROUNDING = 2e-5  # of the largest number, what float32 loses of a change in clear
_NOISE = 4.0  # standard deviations below which nothing is read
_STEPS = 2.0  # of the grid: rounding is off by less than one, and so is each of two values
_FULL = 0.97  # of a whole step of Adam: a gradient beyond it is not told from a larger one
_LOUD, _HEAVY = 30.0, 0.1  # force and weights of traps that others' training does not shake
_BENT = 0.02  # of the largest gradient, what is lost where its step is undone


_Played = list[tuple[float, list[Exposure]]]
"""The rounds of one volley, each with the force that its traps had."""


@dataclass(frozen=True, repr=False)
class Shot:
    """What was read after so many rounds: in clear, of somebody else, and as the receiver reads."""

    rounds: int
    raw: Stolen
    null: Stolen
    seen: Stolen


def one_round(replica: Replica, known: Known, rng: np.random.Generator) -> list[Shot]:
    """Hand crafted models out in the first round, one for each volley."""
    force = force_of(replica, known.usual, known.records)
    played = list[_Played]()
    for volley in known.volleys:
        model = _crafted(replica, known, volley, force).astype(np.float32)
        played.append([(1.0, replica.play([model], rng)[0])])
    return [_shot(replica, known, rng, 1, played)]


def steered(replica: Replica, known: Known, rng: np.random.Generator, rounds: int) -> list[Shot]:
    """Move the model within the clip, round by round; return what was read after 2, 4, 8, ..."""
    force = force_of(replica, known.usual, known.records)
    reach = [replica.bound * n for n in range(rounds)]
    forces = [min(force, most) for most in reach]
    played = list[_Played]()
    for volley in known.volleys:
        goal = _crafted(replica, known, volley, max(forces))
        models = [moved(replica.start, goal, norm=replica.norm, bound=most) for most in reach]
        played.append(list(zip(forces, replica.play(models, rng), strict=True)))
    after = sorted({rounds, *(2**n for n in range(1, rounds.bit_length()))})
    return [_shot(replica, known, rng, n, [one[1:n] for one in played]) for n in after]


def led(
    replica: Replica, known: Known, rng: np.random.Generator, rounds: int, *, beyond: bool = True
) -> list[Shot]:
    """Let one client steer the model that all compute; return what it read after 2, 4, 8, ...

    It knows each model and what it sent, so it mends in each round what others' training moved.

    Args:
        replica: the run.
        known: what it knows of the others' records.
        rng: decides rounding.
        rounds: of the run.
        beyond: it adds what the total's range lets it, and not only what the clip does.
    """
    force = force_of(replica, known.usual, known.records)
    played = list[_Played]()
    for volley in known.volleys:
        goal = _crafted(replica, known, volley, min(force, _LOUD), _HEAVY)
        rows = replica.lead(lambda _, goal=goal: goal, rounds, beyond, rng)  # type: ignore[misc]
        played.append([(_force_in(replica, one[0].known["weights"]), one) for one in rows])
    after = sorted({rounds, *(2**n for n in range(1, rounds.bit_length()))})
    return [_shot(replica, known, rng, n, [one[1:n] for one in played]) for n in after]


def _force_in(replica: Replica, weights: Array) -> float:
    """Return how hard the units of a model push."""
    last = replica.layers.part(weights, replica.layers.last_weight)  # type: ignore[arg-type]
    return max(float(np.mean(last[:, -1])), 1e-12)


def _crafted(
    replica: Replica,
    known: Known,
    volley: Sequence[Target],
    force: float,
    quiet: float | None = None,
) -> Array:
    return crafted(
        replica.layers,
        replica.start.size,
        volley,
        known.popularity,
        usual=known.usual,
        force=force,
        quiet=quiet,
    )


def _shot(
    replica: Replica,
    known: Known,
    rng: np.random.Generator,
    rounds: int,
    played: Sequence[_Played],
) -> Shot:
    """Read what came back of each volley's rounds."""
    named: tuple[list[Numbers | None], ...] = ([], [], [])  # raw, null, seen
    for volley, those in zip(known.volleys, played, strict=True):
        weights = np.array([force for force, _ in those]) / max(force for force, _ in those)
        spread = float(np.linalg.norm(weights))
        off = spread * (_STEPS * replica.step + _NOISE * replica.noise)
        raw, seen = _added(replica, weights, those)
        for unit, target in enumerate(volley):
            strangers = sorted(set(raw) - {target.client})
            other = strangers[int(rng.integers(len(strangers)))]
            named[0].append(_read(replica, unit, target, raw[target.client], 0.0))
            named[1].append(_read(replica, unit, target, raw[other], 0.0))
            named[2].append(_read(replica, unit, target, seen[target.client], off))
    return Shot(rounds, *(Stolen.of(known.targets, one, known.named) for one in named))


def _added(
    replica: Replica, weights: Array, played: _Played
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return, per client, the changes of all rounds added up: as said, and as they were read.

    What weight decay takes off a model that is known is known, too, and put back.
    """
    raw, seen = dict[str, Array](), dict[str, Array]()
    for weight, (_, there) in zip(weights, played, strict=True):
        for one in there:
            back = replica.decay * one.known["weights"]
            for kept, values, said in ((raw, one.raw, 1), (seen, one.seen or {}, one.cohort)):
                counted = float(values["count"]) if replica.weighted else float(said)
                found = weight * (values["delta"].ravel() + counted * back)
                kept[one.client] = kept[one.client] + found if one.client in kept else found
    return raw, seen


def _read(replica: Replica, unit: int, target: Target, change: Array, off: float) -> Numbers | None:
    """Read one trap; `off` is how far apart rounding and noise bring equal numbers."""
    column, bias = trap_of(change, replica.layers, unit)
    off = max(off, _ROUNDING * float(np.abs(column).max(initial=0.0)))
    if replica.optimiser != "sgd":
        column, off = _unbent(column, bias, off)
    return read_words(column, target.known, off)


def _unbent(column: Array, bias: float, off: float) -> tuple[Array, float]:
    """Undo what Adam made of a gradient g near its epsilon e: a step of g / (|g| + e).

    The bias's own gradient is many times larger, so its step is nearly a whole one.
    """
    if abs(bias) <= off:
        return np.zeros_like(column), off
    bent = np.clip(np.where(np.abs(column) > off, column / bias, 0.0), -_FULL, _FULL)
    found = bent / (1.0 - np.abs(bent))
    return found, max(1.5 * off / abs(bias), _BENT * float(np.abs(found).max(initial=0.0)))
