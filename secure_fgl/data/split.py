"""Training, validation and test records, drawn over the whole set before it is shared out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Dataset, Graph, GraphSet, Masks

__all__ = ["deal", "split_masks", "strata"]

Records = npt.NDArray[np.int64]
"""Numbers of records in the whole set."""

HELD_BACK = 0.1
"""Share of a published training part that validates where the published split has no validation;
with the usual 80/20 of ratings that leaves 72/8/20."""


def split_masks(
    whole: Dataset,
    shares: tuple[float, float, float] = (0.2, 0.4, 0.4),
    *,
    rng: np.random.Generator,
    public: bool = False,
    stratify: bool = True,
) -> Masks:
    """Stratified masks over the labelled records; an unlabelled record is in none.

    Drawing before partitioning gives a record the same role at every client that holds it, so
    nobody's test record trains somewhere else. Records are lined up stratum by stratum (see
    `strata`), in random order within one, and roles are dealt along the line at even distances:
    each stratum gets its share of every role to within two records, and the training records are
    floor(share x labelled) exactly, which is what `spec_of` promises as an upper bound.

    For ratings the strata are users: with a training share of a third or more, every user with
    three ratings has one that trains. With a smaller share s it takes 1/s ratings.

    Args:
        whole: the whole data set.
        shares: of training, validation and test, positive or zero, summing to 1.
        rng: source of the random order.
        public: take the published split instead, `shares` then being unused. If it has no
            validation part, a tenth of its training records is moved there, stratified, and every
            stratum keeps a training record.
        stratify: False deals over all labelled records alike; FedGraphNN (He et al. 2021) splits
            Ciao's ratings so.

    Raises:
        ValueError: the shares are negative, do not sum to 1, or leave no training share; or there
            is no published split.
    """
    if public:
        return _published(whole, rng)
    kinds = strata(whole)
    if not stratify:
        kinds = np.minimum(kinds, 0)
    return Masks(*(_mask(whole.records, role) for role in deal(_all(whole), kinds, shares, rng)))


def strata(whole: Dataset) -> Records:
    """What each record is stratified by, int64 (records,); -1 for a record without a label.

    Nodes and graphs: the label. Graphs with several labels: the first one, where "missing" counts
    as a class of its own (2); a graph that misses them all has no label. Ratings: the user.
    """
    if isinstance(whole, Graph):
        return whole.y
    if isinstance(whole, GraphSet):
        if not whole.multilabel:
            return whole.y.astype(np.int64)
        missing = np.isnan(whole.y)
        first = np.where(missing[:, 0], 2, whole.y[:, 0])
        return np.where(missing.all(axis=1), -1, first).astype(np.int64)
    return whole.user


def deal(
    records: Records,
    strata: Records,
    shares: tuple[float, float, float],
    rng: np.random.Generator,
) -> tuple[Records, Records, Records]:
    """Training, validation and test records among `records`, stratified; each ascending.

    Args:
        records: int64 (n,), the records that take part.
        strata: int64 (N,), of every record of the whole set; those of -1 get no role.
        shares: as for `split_masks`.
        rng: source of the random order.

    Raises:
        ValueError: the shares are negative, do not sum to 1, or leave no training share.
    """
    train_share, val_share, test_share = shares
    if min(shares) < 0.0 or train_share == 0.0 or abs(sum(shares) - 1.0) > 1e-9:
        raise ValueError(
            "shares of train, val and test must be 0 or more, sum to 1, and train above 0"
        )
    line = _lined_up(records[strata[records] >= 0], strata, rng)
    to_train = _evenly(len(line), train_share)
    rest = line[~to_train]
    held_out = val_share + test_share
    to_val = _evenly(len(rest), val_share / held_out if held_out else 0.0)
    return np.sort(line[to_train]), np.sort(rest[to_val]), np.sort(rest[~to_val])


def _published(whole: Dataset, rng: np.random.Generator) -> Masks:
    masks = None if isinstance(whole, GraphSet) else whole.public
    if masks is None:
        raise ValueError(
            f"the data set {whole.name!r} carries no published split; ask its source for one (an "
            "option of the data set), or give shares instead"
        )
    if masks.val.any():
        return masks
    kinds = strata(whole)
    line = _lined_up(np.flatnonzero(masks.train), kinds, rng)
    kept = np.diff(kinds[line], prepend=-2) != 0  # the first of every stratum goes on training
    spare = line[~kept]
    share = min(1.0, HELD_BACK * len(line) / max(1, len(spare)))
    val = _mask(whole.records, spare[_evenly(len(spare), share)])
    return Masks(masks.train & ~val, val, masks.test)


def _all(whole: Dataset) -> Records:
    return np.arange(whole.records)


def _lined_up(records: Records, strata: Records, rng: np.random.Generator) -> Records:
    """Records stratum by stratum, in random order within one."""
    line = rng.permutation(records)
    return line[np.argsort(strata[line], kind="stable")]


def _mask(records: int, members: Records) -> npt.NDArray[np.bool_]:
    mask = np.zeros(records, dtype=bool)
    mask[members] = True
    return mask


def _evenly(count: int, share: float) -> npt.NDArray[np.bool_]:
    """Mark floor(share x count) places of a line at even distances, bool (count,)."""
    reached = np.floor(np.arange(count + 1) * share + 1e-9)  # 1e-9: 5 x 0.2 is to reach 1
    marked: npt.NDArray[np.bool_] = np.diff(reached) > 0
    return marked
