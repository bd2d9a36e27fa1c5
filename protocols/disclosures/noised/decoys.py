"""Rows of one client with decoys among them, clipped and noised one by one; see `row_guards`.

Nothing here hides a client the way a sum does. It exists because it is what the field publishes,
and only Unsafe chains use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.noise import MAX_SCALE, MIN_SCALE, DiscreteLaplace, sampler
from crypto.samplers import Stream, entropy
from protocols.disclosures.noised.guards import LEVELS, Decoys, Laplace
from protocols.errors import UnfitMessage
from protocols.messages import Message, partial_of
from protocols.policy.guard import Guard, find
from protocols.policy.guards import Clip
from protocols.unready import Partial

__all__ = ["SENT", "Decoyer", "local_epsilon", "noised_steps", "planned_rows"]

SENT = "sent"
"""Dimension of the rows that leave; the plan sizes it."""

Reals = NDArray[np.float64]
Numbers = NDArray[np.int64]


def planned_rows(chain: Sequence[Guard], dims: Mapping[str, int]) -> dict[str, int]:
    """Return the plan's dimension `SENT`, where an algorithm has ``items``.

    Args:
        chain: of NOISED.
        dims: of the algorithm.
    """
    if "items" not in dims:
        return {}
    decoys = find(tuple(chain), "decoys")
    return {SENT: min(decoys.rows, dims["items"]) if isinstance(decoys, Decoys) else dims["items"]}


def local_epsilon(chain: Sequence[Guard]) -> float | None:
    """Return 2 δ / λ, for one number of one message; None where no epsilon holds (O21)."""
    clip, noise = find(tuple(chain), "clip"), find(tuple(chain), "laplace")
    if not isinstance(clip, Clip) or not isinstance(noise, Laplace) or noise.how != "fixed":
        return None
    return 2.0 * clip.bound / noise.scale


class Decoyer:
    """Makes one client's messages in one run; it remembers which decoys are sticky."""

    def __init__(self) -> None:
        self._rows: Numbers | None = None

    def ready(
        self, message: Message, chain: Sequence[Guard], dims: Mapping[str, int]
    ) -> tuple[Message, bool]:
        """Return the message as it leaves, and whether clip changed it.

        It has `SENT` rows, in the order of their numbers. With decoys or noise all its real numbers
        lie on one grid: low bits would tell the client's rows from those that were drawn.

        Args:
            message: by `NoisedMessage.partial`; any other is only clipped and noised.
            chain: of NOISED.
            dims: of the plan.

        Raises:
            UnfitMessage: rows and numbers disagree, or hold NaN or infinity.
        """
        guards = tuple(chain)
        clip, noise = find(guards, "clip"), find(guards, "laplace")
        partial = partial_of(message)
        values, clipped = dict(partial.fields) if partial else _fields(message), False
        for name, value in values.items():
            if np.asarray(value).dtype.kind == "f" and isinstance(clip, Clip):
                if not np.all(np.isfinite(value)):
                    raise UnfitMessage(f"{type(message).__name__}.{name} holds NaN or infinity.")
                values[name] = np.clip(value, -clip.bound, clip.bound)
                clipped = clipped or not np.array_equal(values[name], value)
        if partial is not None:
            values = self._rows_of(message, partial, values, find(guards, "decoys"), dims)
        if isinstance(clip, Clip) and (noise is not None or find(guards, "decoys") is not None):
            for name, value in values.items():
                if np.asarray(value).dtype.kind == "f":
                    values[name] = _on_grid(np.asarray(value), clip.bound, noise)
        return type(message)(**values), clipped

    def _rows_of(
        self,
        message: Message,
        partial: Partial,
        values: Mapping[str, Any],
        decoys: Guard | None,
        dims: Mapping[str, int],
    ) -> dict[str, Any]:
        """Return the fields with `SENT` rows in place of those that the client holds."""
        places = {f.name: f for f in type(message).fields if SENT in f.shape}
        (number,) = [name for name, field in places.items() if field.wire == "u8"]
        own = np.asarray(values[number], dtype=np.int64)
        if np.unique(own).size != own.size or own.min(initial=0) < 0:
            raise UnfitMessage(f"{type(message).__name__}.{number}: a row is named twice.")
        if own.size and int(own.max()) >= partial.catalogue:
            raise UnfitMessage(f"{type(message).__name__}.{number} names a row beyond the items.")
        stream = Stream(entropy(32))
        said = self._said(own, partial.catalogue, dims[SENT], decoys, stream)
        at = np.searchsorted(np.sort(own), said)
        order = np.argsort(own)
        found = dict(values)
        for name, field in places.items():
            if name == number:
                found[name] = said
                continue
            rows = np.asarray(values[name], dtype=np.float64)
            if len(rows) != len(own):
                raise UnfitMessage(f"{type(message).__name__}.{name}: not one row a number.")
            mine = np.isin(said, own)
            drawn = _alike(rows, int((~mine).sum()), stream) if isinstance(decoys, Decoys) else 0.0
            whole = np.zeros((len(said), *rows.shape[1:]))
            whole[mine] = rows[order[at[mine]]]
            whole[~mine] = drawn
            bound = np.abs(rows).max(initial=0.0)
            found[name] = np.clip(whole, -bound, bound) if field.wire != "u8" else whole
        return found

    def _said(
        self, own: Numbers, catalogue: int, sent: int, decoys: Guard | None, stream: Stream
    ) -> Numbers:
        """Return which rows leave, (sent,), ascending; without decoys the rest is no item."""
        if not isinstance(decoys, Decoys):
            return np.concatenate([np.sort(own), np.full(sent - own.size, catalogue)])
        if decoys.draw == "sticky" and self._rows is not None:
            return self._rows
        others = np.setdiff1d(np.arange(catalogue), own)
        keys = stream.words(own.size), stream.words(others.size)
        most = max(sent // 2, sent - others.size)  # else every row of a busy user would be its own
        mine = own[np.argsort(keys[0], kind="stable")][:most]
        decoy = others[np.argsort(keys[1], kind="stable")][: sent - mine.size]
        self._rows = np.sort(np.concatenate([mine, decoy]))
        return self._rows


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in type(message).fields}


def _alike(rows: Reals, count: int, stream: Stream) -> Reals:
    """Return rows drawn from N(mean, cov) of the given ones: mean + z'R / √(K - 1).

    R'R = (rows - mean)'(rows - mean), by QR: no more numbers are drawn of a row than it has.
    """
    if len(rows) < 1:
        return np.zeros((count, *rows.shape[1:]))
    from scipy.special import ndtri

    mean = rows.mean(axis=0)
    root = np.linalg.qr((rows - mean).reshape(len(rows), -1), mode="r")
    words = stream.words(count * len(root)) >> np.uint64(11)
    normal = ndtri((words.astype(np.float64) + 0.5) * 2.0**-53).reshape(count, len(root))
    drawn = normal @ root / np.sqrt(max(len(rows) - 1, 1))
    found: Reals = mean + drawn.reshape(count, *rows.shape[1:])
    return found


def _on_grid(value: Reals, bound: float, noise: Guard | None) -> Reals:
    """Return values rounded to the grid, with noise on it: no low bit tells what a value was."""
    found: Reals = noised_steps(value, bound, noise).astype(np.float64) * (bound / LEVELS)
    return found


def noised_steps(value: Reals, bound: float, noise: Guard | None) -> Numbers:
    """Return values, within ±`bound`, as whole steps of bound / `LEVELS`, with noise on them.

    Args:
        value: of any shape.
        bound: of `clip`.
        noise: the guard `laplace`; None adds none. Drawn from the operating system (O15).
    """
    step = bound / LEVELS
    levels = np.rint(value / step).astype(np.int64)
    if isinstance(noise, Laplace):
        scale = noise.scale / step
        if noise.how == "fixed":
            law = sampler(DiscreteLaplace, scale)
        else:
            scale *= float(np.abs(value).mean()) if value.size else 0.0
            law = DiscreteLaplace(float(np.clip(scale, MIN_SCALE, MAX_SCALE)))
        drawn = law.sample(Stream(entropy(32)), value.size)
        levels = levels + drawn.reshape(value.shape)
    return levels
