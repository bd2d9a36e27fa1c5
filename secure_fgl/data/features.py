"""How features are scaled before a model sees them: at each site, from its own records alone.

    raw       as the data has them
    row       each row divided by its sum, as Kipf and Welling (ICLR 2017, section 5.1) do
    l2        each row divided by its Euclidean length
    standard  each column less its mean and divided by its standard deviation over the site's own
              records, whatever part they are in; a column that is the same everywhere becomes 0

Nothing leaves a site for it. Rows of `row` and `l2` depend on one record; `standard` on all records
of one site, so two sites scale the same value differently, and a table is no longer sparse. Where a
policy hides single records `standard` is refused: one record would move what is said of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from protocols.errors import NotAdmitted
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.data.records import ClientGraph, ClientGraphs, Dataset, Features, Part, Ratings

__all__ = ["Scaling", "check_scaling", "rescaled", "scaled", "scaled_part", "statistics"]

Scaling = Literal["raw", "row", "l2", "standard"]
Records = TypeVar("Records", bound=Dataset)
_Fitted = Callable[[Features], Features]


def check_scaling(how: Scaling, policy: PrivacyPolicy) -> None:
    """Raise NotAdmitted where a policy hides single records, and one record scales all others."""
    units = sorted(set(policy.budgets) - {"client"})
    if how == "standard" and units:
        raise NotAdmitted(
            f"Policy {policy.name!r} hides every single {units[0]}, and data.features: standard "
            "scales each record by all records of its site.",
            why="one of them moves what is sent of all others, far beyond what the noise is for",
            fix="set data.features to raw, row or l2, which look at one record alone",
        )


def scaled(whole: Records, how: Scaling) -> Records:
    """Return a whole data set with its features scaled; ratings have none."""
    if how == "raw" or isinstance(whole, Ratings):
        return whole
    fitted = _FITS[how](whole.x)
    return cast(Records, replace(whole, x=fitted(whole.x)))


def scaled_part(part: Part, how: Scaling) -> Part:
    """Return a site's part with its features scaled; ratings have none."""
    if how == "raw" or not isinstance(part, ClientGraph | ClientGraphs):
        return part
    fitted = _FITS[how](part.x)
    if isinstance(part, ClientGraph) and part.common is not None:
        common = replace(part.common, x=fitted(part.common.x))
        return replace(part, x=fitted(part.x), common=common)
    return replace(part, x=fitted(part.x))


def _rows(norm: Callable[[Features], npt.NDArray[np.float32]]) -> Callable[[Features], _Fitted]:
    """Return a way that divides each row by a number of its own; rows of nothing stay."""

    def divided(x: Features) -> Features:
        sizes = norm(x)
        scale = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes != 0).astype(np.float32)
        if isinstance(x, np.ndarray):
            return x * scale[:, None]
        made = x.copy()
        made.data = made.data * np.repeat(scale, np.diff(made.indptr))
        return made

    return lambda _: divided


def _sums(x: Features) -> npt.NDArray[np.float32]:
    return np.asarray(x.sum(axis=1), dtype=np.float32).ravel()


def _lengths(x: Features) -> npt.NDArray[np.float32]:
    squares = x * x if isinstance(x, np.ndarray) else x.multiply(x)
    found: npt.NDArray[np.float32] = np.sqrt(np.asarray(squares.sum(axis=1))).ravel()
    return found.astype(np.float32)


def rescaled(x: Features, how: Scaling, known: Mapping[str, Any]) -> Features:
    """Return new records' features, scaled as a model's own site scaled its records.

    Args:
        x: as the data has them.
        how: as the model was trained.
        known: ``mean`` and ``scale`` of that site, see `statistics`; without them `standard` goes
            by the new records alone.
    """
    if how == "standard" and known:
        return _standard(x, np.asarray(known["mean"]), np.asarray(known["scale"]))
    return x if how == "raw" else _FITS[how](x)(x)


def statistics(fitted: Features) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return what `standard` takes off each column, and by what it then multiplies, (F,) each."""
    table = _dense(fitted).astype(np.float64)
    mean, deviation = table.mean(axis=0), table.std(axis=0)
    # What rounding leaves of a constant column is no spread.
    spread = deviation > 1e-6 * np.maximum(np.abs(mean), 1.0)
    return mean, np.divide(1.0, deviation, out=np.zeros_like(deviation), where=spread)


def _columns(fitted: Features) -> _Fitted:
    """Return a way that scales by the columns' means and deviations of these records."""
    mean, scale = statistics(fitted)
    return lambda x: _standard(x, mean, scale)


def _standard(x: Features, mean: npt.NDArray[Any], scale: npt.NDArray[Any]) -> Features:
    return np.asarray((_dense(x) - mean) * scale, dtype=np.float32)


def _dense(x: Features) -> npt.NDArray[np.float32]:
    import scipy.sparse as sp

    return x.toarray() if sp.issparse(x) else np.asarray(x)


_FITS: Mapping[str, Callable[[Features], _Fitted]] = {
    "row": _rows(_sums),
    "l2": _rows(_lengths),
    "standard": _columns,
}
