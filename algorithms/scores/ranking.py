"""ROC-AUC from histograms of scores. For yes-or-no labels, of which some may be missing.

A client counts how many of its positive and of its negative records have a score in each bin; the
area under the pooled curve follows from the cohort's totals, with ties within a bin counted half::

    AUC = sum_b p_b (N_b + n_b / 2) / (P N),   N_b = negatives in bins below b.

**Error.** Pairs of a positive and a negative in different bins are ordered as their scores are, so
only pairs that share a bin can be counted wrongly, and each by at most a half. Hence
|binned - exact| <= sum_b p_b n_b / (2 P N), which is known from the totals (`Ranking.error`).

**Bins** are of equal width in t(p) = 1/2 + x / (2 (2 + |x|)), x = log(p / (1 - p)): as fine as
equal parts of [0, 1] in the middle, and ever finer towards 0 and 1, where overconfident models put
most of their scores. With 1,000 equal parts of [0, 1] the area of a model whose logits spread by 10
was off by 0.03; with these bins by less than 0.001. An increasing map leaves the ranking as it is.

**What a bin tells.** Totals are exact, and a bin may have a single contributor (O12): its record's
score is then disclosed to within the bin, though not whose it is. Noise on SUM, or a policy that
lets no metric leave, is the remedy where that is too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from protocols.messages import Matrix, SumMessage, count

__all__ = ["UNDEFINED", "RankScore", "Ranking"]

UNDEFINED = (
    "ROC-AUC is undefined: no label has both a positive and a negative record among those that "
    "were counted, so there is no pair to put in order. Hold out more records, or stratify the "
    "split"
)
"""What to print beside a metric that `Ranking.read` gives as None."""

_UNIT = 10_000
_FEWEST, _MOST = 50, 1000

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class RankScore(SumMessage):
    """How this client's validation and test records are scored, as counts per label and bin."""

    val_positive: Matrix = count(
        "rank_labels", "rank_bins", unit="record", meaning="positive validation records per score"
    )
    val_negative: Matrix = count(
        "rank_labels", "rank_bins", unit="record", meaning="negative validation records per score"
    )
    test_positive: Matrix = count(
        "rank_labels", "rank_bins", unit="record", meaning="positive test records per score"
    )
    test_negative: Matrix = count(
        "rank_labels", "rank_bins", unit="record", meaning="negative test records per score"
    )
    val_count: int = count(unit="record", meaning="validation records")
    test_count: int = count(unit="record", meaning="test records")
    test_share: int = count(unit="1/10000", meaning="this client's test ROC-AUC, for their mean")
    test_clients: int = count(unit="client", meaning="1 if this client's test ROC-AUC is defined")


class Ranking:
    """ROC-AUC pooled over clients per label, averaged over the labels; and the clients' own mean.

    Args:
        labels: yes-or-no questions a record, T.
        bins: bins a histogram. A message has 4 T `bins` counts, so the default is fewer where
            labels are many: 1,000 / T and at least 50 (27 labels: 5,400 counts).

    Raises:
        ValueError: `labels` or `bins` is below 1.
    """

    kind = RankScore
    names = ("test_roc_auc", "val_roc_auc", "test_roc_auc_client_mean", "test_roc_auc_error")

    def __init__(self, labels: int, bins: int | None = None) -> None:
        if labels < 1 or (bins is not None and bins < 1):
            raise ValueError("Ranking needs labels >= 1 and bins >= 1")
        self._labels = labels
        self._bins = bins or max(_FEWEST, _MOST // labels)

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes: labels and bins."""
        return {"rank_labels": self._labels, "rank_bins": self._bins}

    def count(
        self,
        predictions: npt.NDArray[np.float32],
        y: npt.NDArray[np.float32],
        val: npt.NDArray[np.bool_],
        test: npt.NDArray[np.bool_],
    ) -> RankScore:
        """One client's score.

        The client's own test ROC-AUC, for the clients' mean, is exact: the mean over the labels of
        which it has both kinds of test records, or nothing if there is no such label.

        Args:
            predictions: (N, T) probabilities.
            y: (N, T) of 0, 1 and NaN for a missing label, which is not counted.
            val: bool (N,), validation records.
            test: bool (N,), test records.

        Raises:
            ValueError: there is not one prediction a record and label.
            FloatingPointError: predictions are no probabilities.
        """
        if predictions.shape != (len(y), self._labels) or predictions.shape != y.shape:
            raise ValueError(
                "predictions and labels must have one row a record and one column a label; "
                "score what `predict` returned for the same site"
            )
        if not ((predictions >= 0.0) & (predictions <= 1.0)).all():
            raise FloatingPointError(
                "predictions are not within [0, 1], most likely because training diverged; lower "
                "model.lr or scale the features"
            )
        bins = _bins(predictions, self._bins)
        own = _mean(_exact(predictions[test], y[test]))
        return RankScore(
            val_positive=self._histogram(bins, (y == 1) & val[:, None]),
            val_negative=self._histogram(bins, (y == 0) & val[:, None]),
            test_positive=self._histogram(bins, (y == 1) & test[:, None]),
            test_negative=self._histogram(bins, (y == 0) & test[:, None]),
            val_count=int(val.sum()),
            test_count=int(test.sum()),
            test_share=0 if own is None else round(_UNIT * own),
            test_clients=int(own is not None),
        )

    def _histogram(self, bins: Counts, chosen: npt.NDArray[np.bool_]) -> Counts:
        size = self._labels * self._bins
        cells = bins + self._bins * np.arange(self._labels)
        counts: Counts = np.bincount(cells[chosen], minlength=size)
        return counts.reshape(self._labels, self._bins)

    def read(self, total: Any) -> dict[str, float | None]:
        """ROC-AUCs in [0, 1]; None where no label has both kinds of records (`UNDEFINED`)."""
        clients = int(total.test_clients)
        return {
            "test_roc_auc": _mean(_areas(total.test_positive, total.test_negative)),
            "val_roc_auc": _mean(_areas(total.val_positive, total.val_negative)),
            "test_roc_auc_client_mean": int(total.test_share) / _UNIT / clients
            if clients
            else None,
            "test_roc_auc_error": self.error(total),
        }

    def error(self, total: Any) -> float | None:
        """Return how far `test_roc_auc` can be from the exact one; None where it is undefined."""
        positive, negative = _floats(total.test_positive), _floats(total.test_negative)
        pairs = positive.sum(axis=1) * negative.sum(axis=1)
        shared = (positive * negative).sum(axis=1)
        return _mean(shared[pairs > 0] / (2.0 * pairs[pairs > 0]))

    def merit(self, total: Any) -> float | None:
        """Validation ROC-AUC; None where it is undefined."""
        return _mean(_areas(total.val_positive, total.val_negative))

    def shares(self, total: Any) -> tuple[float, float]:
        """ROC-AUCs on validation and test records; that of a coin where one is undefined."""
        areas = self.merit(total), _mean(_areas(total.test_positive, total.test_negative))
        val, test = (0.5 if area is None else area for area in areas)
        return val, test

    def plausible(self, total: Any, clients: int) -> bool:
        """Tell whether honest clients can have this total.

        No label has more answers than there are records; and each client that has a test ROC-AUC,
        of at most 1, brings a positive and a negative record of one label.
        """
        return bool(
            _fits(total.val_positive, total.val_negative, total.val_count)
            and _fits(total.test_positive, total.test_negative, total.test_count)
            and total.test_clients <= clients
            and total.test_share <= _UNIT * total.test_clients
            and total.test_clients <= _pairs(total.test_positive, total.test_negative)
        )


def _bins(predictions: npt.NDArray[np.float32], bins: int) -> Counts:
    from scipy.special import logit

    x = np.clip(logit(predictions.astype(np.float64)), -1e9, 1e9)  # finite at 0 and 1 too
    place = 0.5 + x / (2.0 * (2.0 + np.abs(x)))
    return np.minimum((place * bins).astype(np.int64), bins - 1)


def _exact(predictions: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> Floats:
    """Areas (T,), with a bin of its own for every distinct score; NaN where undefined."""
    areas = np.full(y.shape[1], np.nan)
    for label in range(y.shape[1]):
        known = ~np.isnan(y[:, label])
        values, places = np.unique(predictions[known, label], return_inverse=True)
        yes = y[known, label] == 1
        positive = np.bincount(places[yes], minlength=len(values))
        negative = np.bincount(places[~yes], minlength=len(values))
        areas[label] = _areas(positive[None], negative[None])[0]
    return areas


def _areas(positive: Any, negative: Any) -> Floats:
    """Areas (T,) from counts (T, bins) by ascending score; NaN where one kind is absent."""
    p, n = _floats(positive), _floats(negative)
    below = np.cumsum(n, axis=1) - n
    won = (p * (below + n / 2.0)).sum(axis=1)
    pairs = p.sum(axis=1) * n.sum(axis=1)
    areas: Floats = np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return areas


def _floats(counts: Any) -> Floats:
    return np.asarray(counts, dtype=np.float64)


def _mean(areas: Floats) -> float | None:
    defined = areas[~np.isnan(areas)]
    return float(defined.mean()) if len(defined) else None


def _fits(positive: Any, negative: Any, records: int) -> bool:
    answers = _floats(positive).sum(axis=1) + _floats(negative).sum(axis=1)
    return bool((answers <= records).all())


def _pairs(positive: Any, negative: Any) -> float:
    """The most clients that can each have a positive and a negative record of one label."""
    return float(np.minimum(_floats(positive).sum(axis=1), _floats(negative).sum(axis=1)).sum())
