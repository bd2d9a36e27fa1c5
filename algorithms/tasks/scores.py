"""How predictions are counted: accuracy, errors of ratings, and ROC-AUC.

A score is a message of exact counts over one client's validation and test records, so that only
cohort totals are ever disclosed and no number of a single client leaves. What is printed (accuracy,
ROC-AUC, MAE) is computed from the totals.

**Accuracy on a common test graph**, which all clients were given (FedEgo). Zhang et al., FedEgo,
2022, section 5.1, score every client's model on its own test nodes and on the nodes of a global
test that nobody trains on, and give the mean over clients of the micro-averaged F1. With one class
a node that is the accuracy. The global test is one and the same graph everywhere, so the mean over
clients is the pooled share.

**Errors of predicted ratings**: MAE and RMSE, pooled over all clients' ratings. An error is
measured in the range of the scale, so it is at most 1, and its sums leave as whole numbers of
1/10000. A client's sum is below 2^32 as long as it has no more than 429,496 ratings in one split,
whatever their errors are; more are refused when the message is laid out. Rounding moves a pooled
mean by at most K / (20000 n) of the range, K clients having n ratings together.

**ROC-AUC from histograms of scores**, for yes-or-no labels, of which some may be missing. A client
counts how many of its positive and of its negative records have a score in each bin; the area under
the pooled curve follows from the cohort's totals, with ties within a bin counted half::

    AUC = sum_b p_b (N_b + n_b / 2) / (P N),   N_b = negatives in bins below b.

**Error of binning.** Pairs of a positive and a negative in different bins are ordered as their
scores are, so only pairs that share a bin can be counted wrongly, and each by at most a half. Hence
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

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from protocols.messages import Matrix, SumMessage, count, values

__all__ = [
    "COMMON",
    "SCORING",
    "UNDEFINED",
    "Accuracy",
    "CommonAccuracy",
    "CommonScore",
    "ErrorScore",
    "Errors",
    "RankScore",
    "Ranking",
    "Score",
    "Scoring",
    "mean_reference",
]


class Scoring(Protocol):
    """Reads totals of one kind of score."""

    @property
    def kind(self) -> type[SumMessage]:
        """The message that a client answers with."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes of the message's named dimensions."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics that `read` returns; the first is the headline."""

    def read(self, total: Any) -> dict[str, float | None]:
        """Metrics of a cohort total; None where there are no records, or too few kinds of them.

        ROC-AUC needs a positive and a negative one.
        """

    def merit(self, total: Any) -> float | None:
        """How good the validation records were predicted; larger is better, by which best is.

        None where nothing tells: there are no such records. 0 of 0 is no merit.
        """

    def shares(self, total: Any) -> tuple[float, float]:
        """How good validation and test records were predicted, in [0, 1]; larger is better."""

    def plausible(self, total: Any, clients: int) -> bool:
        """Tell whether honest clients can have this total. Encryption gives no range proof."""


_UNIT = 10_000


class Score(SumMessage):
    """How many of this client's validation and test records are predicted correctly.

    One record of a set whose records do not depend on each other, there or not, moves each count by
    one at most, and the accuracy of its client by all of it.
    """

    val_correct: int = count(unit="record", meaning="correct on validation records", moves=1)
    val_count: int = count(unit="record", meaning="validation records", moves=1)
    test_correct: int = count(unit="record", meaning="correct on test records", moves=1)
    test_count: int = count(unit="record", meaning="test records", moves=1)
    test_share: int = count(
        unit="1/10000", meaning="this client's test accuracy, for their mean", moves=_UNIT
    )
    test_clients: int = count(unit="client", meaning="1 if this client has test records", moves=1)


class Accuracy:
    """Pooled accuracy, and the unweighted mean of the clients' test accuracies."""

    kind: type[Score] = Score
    dims: dict[str, int] = {}  # noqa: RUF012 - a protocol's attribute, never written to
    names: tuple[str, ...] = ("test_accuracy", "val_accuracy", "test_accuracy_client_mean")

    def count(
        self,
        predictions: npt.NDArray[np.float32],
        y: npt.NDArray[np.int64],
        val: npt.NDArray[np.bool_],
        test: npt.NDArray[np.bool_],
    ) -> Score:
        """One client's score.

        Args:
            predictions: (N, C); the first of equal maxima counts.
            y: int64 (N,), true classes.
            val: bool (N,), validation records.
            test: bool (N,), test records.

        Raises:
            ValueError: there is not one prediction a record.
        """
        if predictions.ndim != 2 or len(predictions) != len(y):
            raise ValueError(
                "predictions must have one row a record and one column a class; "
                "score what `predict` returned for the same site"
            )
        hits = predictions.argmax(axis=1) == y
        right, seen = int(hits[test].sum()), int(test.sum())
        return Score(
            val_correct=int(hits[val].sum()),
            val_count=int(val.sum()),
            test_correct=right,
            test_count=seen,
            test_share=round(_UNIT * right / seen) if seen else 0,
            test_clients=int(seen > 0),
        )

    def read(self, total: Any) -> dict[str, float | None]:
        """Accuracies in [0, 1]; None where there are no records."""
        return {
            "test_accuracy": _ratio(total.test_correct, total.test_count),
            "val_accuracy": _ratio(total.val_correct, total.val_count),
            "test_accuracy_client_mean": _ratio(total.test_share / _UNIT, total.test_clients),
        }

    def merit(self, total: Any) -> float | None:
        """Pooled validation accuracy; None without validation records."""
        return _ratio(total.val_correct, total.val_count)

    def shares(self, total: Any) -> tuple[float, float]:
        """Accuracies on validation and test records; 0 where there are none."""
        val, test = self.merit(total), _ratio(total.test_correct, total.test_count)
        return val or 0.0, test or 0.0

    def plausible(self, total: Any, clients: int) -> bool:
        """No more correct than counted, no more clients than there are."""
        return bool(
            total.val_correct <= total.val_count
            and total.test_correct <= total.test_count
            and total.test_clients <= clients
            and total.test_share <= _UNIT * total.test_clients
        )


def _ratio(right: float, seen: int) -> float | None:
    """Return a share of records; None where none was seen, or noise leaves none of them."""
    return float(right / seen) if seen > 0 else None


SCORING = Accuracy()


class CommonScore(Score):
    """How many of this client's own, and of the common test's, records are predicted correctly."""

    common_correct: int = count(unit="record", meaning="correct on the common test graph")
    common_count: int = count(unit="record", meaning="records of the common test graph")


class CommonAccuracy(Accuracy):
    """Accuracy, and the two F1 scores of FedEgo."""

    kind = CommonScore
    names = (*Accuracy.names, "local_f1", "global_f1")

    def common(
        self,
        predictions: npt.NDArray[np.float32],
        y: npt.NDArray[np.int64],
        own: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
        shared: npt.NDArray[np.bool_],
    ) -> CommonScore:
        """One client's score.

        Args:
            predictions: (N, C), the common test's rows included.
            y: int64 (N,), true classes.
            own: bool (N,) twice, the client's validation and test records.
            shared: bool (N,), records of the common test.

        Raises:
            ValueError: there is not one prediction a record.
        """
        mine = self.count(predictions, y, *own)
        hits = predictions[shared].argmax(axis=1) == y[shared]
        return CommonScore(**values(mine), common_correct=int(hits.sum()), common_count=len(hits))

    def read(self, total: Any) -> dict[str, float | None]:
        """As `Accuracy.read`; `global_f1` is None where there is no common test."""
        found = super().read(total)
        seen = total.common_count
        return {
            **found,
            "local_f1": found["test_accuracy_client_mean"],
            "global_f1": total.common_correct / seen if seen else None,
        }

    def plausible(self, total: Any, clients: int) -> bool:
        """As `Accuracy.plausible`, and no more correct than counted."""
        return super().plausible(total, clients) and bool(
            total.common_correct <= total.common_count
        )


COMMON = CommonAccuracy()


Numbers = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class ErrorScore(SumMessage):
    """How far this client's validation and test ratings are predicted wrongly."""

    val_absolute: int = count(
        unit="1/10000 of the scale", meaning="sum of absolute errors on validation ratings"
    )
    val_square: int = count(
        unit="1/10000 of the squared scale", meaning="sum of squared errors on validation ratings"
    )
    val_count: int = count(unit="record", meaning="validation ratings")
    test_absolute: int = count(
        unit="1/10000 of the scale", meaning="sum of absolute errors on test ratings"
    )
    test_square: int = count(
        unit="1/10000 of the squared scale", meaning="sum of squared errors on test ratings"
    )
    test_count: int = count(unit="record", meaning="test ratings")
    test_share: int = count(
        unit="1/10000 of the scale", meaning="this client's mean absolute test error"
    )
    test_clients: int = count(unit="client", meaning="1 if this client has test ratings")


class Errors:
    """Pooled MAE and RMSE, and the unweighted mean of the clients' MAE, in units of a rating.

    Args:
        lowest, highest: the scale of ratings, public.
        squared: the RMSE is the headline, as in the papers of recommenders; else the MAE.

    Raises:
        ValueError: the scale has no range.
    """

    kind = ErrorScore
    dims: dict[str, int] = {}  # noqa: RUF012 - a protocol's attribute, never written to
    names: tuple[str, ...] = (
        "test_mae", "test_rmse", "val_mae", "val_rmse", "test_mae_client_mean",
    )  # fmt: skip

    def __init__(self, lowest: float, highest: float, *, squared: bool = False) -> None:
        if not lowest < highest:
            raise ValueError("the lowest rating must be below the highest; check the DataSpec")
        self._range = highest - lowest
        if squared:
            first, second, *rest = self.names
            self.names = (second, first, *rest)

    def count(
        self,
        predictions: Numbers,
        rating: Numbers,
        val: npt.NDArray[np.bool_],
        test: npt.NDArray[np.bool_],
    ) -> ErrorScore:
        """One client's score.

        Args:
            predictions: (M,), within the scale.
            rating: (M,), true ratings.
            val: bool (M,), validation ratings.
            test: bool (M,), test ratings.

        Raises:
            ValueError: there is not one prediction a rating, or one that is not finite.
        """
        if predictions.shape != rating.shape or rating.ndim != 1:
            raise ValueError(
                "predictions must have one entry a rating; "
                "score what `predict` returned for the same site"
            )
        errors = np.abs(predictions.astype(np.float64) - rating) / self._range
        if not np.isfinite(errors).all():
            raise ValueError("a prediction or a rating is NaN or infinity; lower model.lr")
        errors = np.minimum(errors, 1.0)  # float32 may carry an end of the scale beyond it
        of_test, seen = _sum(errors[test]), int(test.sum())
        return ErrorScore(
            val_absolute=_sum(errors[val]),
            val_square=_sum(errors[val] ** 2),
            val_count=int(val.sum()),
            test_absolute=of_test,
            test_square=_sum(errors[test] ** 2),
            test_count=seen,
            test_share=round(of_test / seen) if seen else 0,
            test_clients=int(seen > 0),
        )

    def read(self, total: Any) -> dict[str, float | None]:
        """Errors in units of a rating; None where there are no ratings."""
        return {
            "test_mae": self._mean(total.test_absolute, total.test_count),
            "test_rmse": self._root(total.test_square, total.test_count),
            "val_mae": self._mean(total.val_absolute, total.val_count),
            "val_rmse": self._root(total.val_square, total.val_count),
            "test_mae_client_mean": self._mean(total.test_share, total.test_clients),
        }

    def merit(self, total: Any) -> float | None:
        """Minus the pooled validation RMSE; None without validation ratings."""
        error = self._root(total.val_square, total.val_count)
        return None if error is None else -error

    def shares(self, total: Any) -> tuple[float, float]:
        """One less the RMSE, in units of the scale; 0 where there are no ratings."""
        errors = (
            self._root(total.val_square, total.val_count),
            self._root(total.test_square, total.test_count),
        )
        val, test = (0.0 if e is None else 1.0 - e / self._range for e in errors)
        return val, test

    def plausible(self, total: Any, clients: int) -> bool:
        """Errors between 0 and 1, squares as such errors have them, and no more clients than are.

        Every sum of a client is rounded to the nearest unit, so a total is off by half a unit for
        each client at most.
        """
        return bool(
            _possible(total.val_absolute, total.val_square, total.val_count, clients)
            and _possible(total.test_absolute, total.test_square, total.test_count, clients)
            and total.test_clients <= min(clients, total.test_count)
            and total.test_share <= _UNIT * total.test_clients
        )

    def _mean(self, units: int, number: int) -> float | None:
        return self._range * units / _UNIT / number if number else None

    def _root(self, units: int, number: int) -> float | None:
        return self._range * math.sqrt(units / _UNIT / number) if number else None


def _sum(errors: npt.NDArray[np.float64]) -> int:
    return round(_UNIT * float(errors.sum()))


def _possible(absolute: int, square: int, number: int, clients: int) -> bool:
    """Tell whether so many errors in [0, 1] can have these rounded sums: e^2 <= e, and Cauchy's."""
    least = max(absolute - clients / 2, 0.0)
    return (
        absolute <= _UNIT * number
        and square <= absolute + clients
        and least * least <= _UNIT * number * (square + clients / 2)
    )


def mean_reference(train: Numbers, test: Numbers) -> tuple[float, float]:
    """MAE and RMSE on `test` of always predicting the mean of `train`, in units of a rating.

    What a model must beat before its error says anything; no federation is needed to compute the
    mean, but only a simulator holds all test ratings.

    Args:
        train: ratings, shape (n,), whose mean is predicted.
        test: ratings, shape (m,), that are predicted.

    Raises:
        ValueError: one of them is empty.
    """
    if not len(train) or not len(test):
        raise ValueError("the mean needs at least one training rating, its error one test rating")
    errors = np.asarray(test, dtype=np.float64) - np.mean(train, dtype=np.float64)
    return float(np.abs(errors).mean()), float(np.sqrt(np.square(errors).mean()))


UNDEFINED = (
    "ROC-AUC is undefined: no label has both a positive and a negative record among those that "
    "were counted, so there is no pair to put in order. Hold out more records, or stratify the "
    "split"
)
"""What to print beside a metric that `Ranking.read` gives as None."""

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
