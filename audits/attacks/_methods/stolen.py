"""What a crafted model brings back of the records that its traps are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.bags import read_words
from audits.attacks._methods.known_words import Known, Stolen
from audits.attacks._methods.traps import Target, crafted, force_of, moved, trap_of
from audits.attacks._shared.material import Array, Exposure, Replica

__all__ = ["Shot", "led", "one_round", "steered"]

_ROUNDING = 2e-5  # of the largest number, what float32 loses of a change in clear
_NOISE = 4.0  # standard deviations below which nothing is read
_STEPS = 2.0  # of the grid: rounding is off by less than one, and so is each of two values
_FULL = 0.97  # of a whole step of Adam: a gradient beyond it is not told from a larger one
_LOUD, _HEAVY = 30.0, 0.1  # force and weights of traps that others' training does not shake
_BENT = 0.02  # of the largest gradient, what is lost where its step is undone

Numbers = npt.NDArray[np.int64]
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
