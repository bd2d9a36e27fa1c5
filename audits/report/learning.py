"""Training curves: the scores of ``metrics.jsonl``, as totals over a cohort gave them (O28)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field as Setting

from protocols.strict import Strict

MOST_POINTS, MOST_CURVES = 120, 12
"""Points of one curve, and curves of one report; ``metrics.jsonl`` has all."""
_LONGEST = 60  # characters of a name
_LAST_ROUND = 1 << 53


class Point(Strict):
    """One score after one round."""

    round: int = Setting(description="0: before the first")
    value: str = Setting(description="decimal text")


class Curve(Strict):
    """One score over the rounds; of many rounds every so many-th, and the last."""

    name: str = Setting(description="as in metrics.jsonl, for example `val_accuracy`")
    points: tuple[Point, ...] = Setting(description="by round, at most 120")


def curves(rows: Sequence[Mapping[str, Any]]) -> tuple[Curve, ...]:
    """Return the curves of ``metrics.jsonl``, by name.

    What is no score is left out: a line without a later round than the line before, an entry that
    is no finite number, a name that cannot be printed.

    Args:
        rows: its lines, of which anybody may have written anything.
    """
    found: dict[str, list[Point]] = {}
    before = -1
    for row in rows:
        round = row.get("round")
        if type(round) is not int or not before < round < _LAST_ROUND:
            continue
        before = round
        for name, value in row.items():
            if name != "round" and _named(name) and (text := _decimal(value)):
                found.setdefault(name, []).append(Point(round=round, value=text))
    names = sorted(found)[:MOST_CURVES]
    return tuple(Curve(name=name, points=_thinned(found[name])) for name in names)


def _named(name: str) -> bool:
    return bool(name) and len(name) <= _LONGEST and name.isprintable()


def _decimal(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if isinstance(value, int):
        return str(value) if abs(value) < _LAST_ROUND else ""
    return f"{value:.6g}" if math.isfinite(value) else ""


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    step = max(1, -(-len(points) // (MOST_POINTS - 1)))
    return (*points[:-1:step], points[-1])


# Which model a run delivers: the best by validation, or the last; and whether it was trained.


NEVER_TRAINED = (
    "MODEL NEVER TRAINED: on validation records no round did as well as the model before training, "
    "so that one is delivered; predict, evaluate and model export use it"
)
BEST, NO_SCORE = "best validation score", "no score of all clients"
LAST = "last round: no validation score"
NEVER = "best validation score, before training: the model was never trained"


def never_trained(result: Mapping[str, Any]) -> bool:
    """Tell whether the model that a run delivers is the one before its first round.

    Args:
        result: ``result.json``, of which anybody may have written anything.
    """
    metrics = result.get("metrics")
    best = metrics.get("best_round") if isinstance(metrics, Mapping) else None
    return type(best) is int and best == 0


def chosen_by(result: Mapping[str, Any]) -> str:
    """Return what the delivered model of a finished run was chosen by, in words."""
    metrics = result.get("metrics", {})
    if metrics.get("best_round") is None:
        return NO_SCORE
    if never_trained(result):
        return NEVER
    validated = any(metrics[name] is not None for name in metrics if name.startswith("val_"))
    return BEST if validated else LAST


# What a federation is worth: its model beside the best of the references that send nothing.


ALONE: Mapping[str, str] = {
    "local": "local only",
    "propagation": "labels on edges",
    "local_propagation": "local, then edges",
    "logistic": "logistic at site",
    "boosted": "boosted at site",
    "mean": "predict the mean",
}
"""References for which no site sends anything, with their labels."""
GATHERED: Mapping[str, str] = {
    "released_model": "released model",
    "whole_graph": "whole graph",
    "centralised": "centralised",
    "pmf": "factorisation",
}
"""What only the holder of all data has."""
ON_NODES = ("local", "propagation", "local_propagation", "logistic", "boosted")
"""What a federation of nodes is to be compared with."""

RARE = 0.9
"""Of all test records in one class; beyond it, a model that gives no other is as accurate."""
_FALLING = ("test_mae", "test_rmse")  # errors: the smaller is the better
_METRICS = ("test_accuracy", "test_roc_auc", *_FALLING)
_TOGETHER = (
    "The federation beats every reference that sends nothing",
    "The federation LOSES to a reference that sends nothing",
    "The federation is level with a reference that sends nothing",
)
_ALONE = (
    "This is no federation, its clients share nothing: their models beat every reference",
    "This is no federation, its clients share nothing: their models are behind a reference",
    "This is no federation, its clients share nothing: their models are level with a reference",
)
_SHARING_NOTHING = ("local", "loc_sage")
_MOST = 1 << 53
_WHY = {
    "scikit-learn": "it needs scikit-learn: pip install 'secure-fgl[evaluate]'",
    "diverged": "its training diverged",
    "not there": "this data or this simulator has nothing to compute it from",
    "own tables": "of sites' own tables nobody holds the whole, not even in a simulation",
}


class Worth(NamedTuple):
    """A run beside the best reference that sends nothing.

    Attributes:
        metric: the run's own, for example ``test_accuracy``.
        run: its value.
        best: name of the reference.
        value: its value.
        margin: two standard errors of the difference, as if both were scored on test records of
            their own; 0 where nobody counted them.
        without: references that sites could compute, and that were not compared.
        commonest: the share of test records in the commonest class, where it makes an accuracy say
            little (more than `RARE`); else None.
        alone: the run is no federation: its clients share nothing.
    """

    metric: str
    run: float
    best: str
    value: float
    margin: float
    without: tuple[str, ...]
    commonest: float | None = None
    alone: bool = False

    @property
    def ahead(self) -> float:
        """By how much the federation is better; negative where the reference is."""
        gain = self.run - self.value
        return -gain if self.metric in _FALLING else gain


def worth(result: Mapping[str, Any]) -> Worth | None:
    """Return the comparison, None where there is nothing to compare.

    Args:
        result: ``result.json``, of which anybody may have written anything.
    """
    metric, seen, metrics = (result.get(key) for key in ("headline", "references", "metrics"))
    if metric not in _METRICS or not isinstance(seen, Mapping) or not isinstance(metrics, Mapping):
        return None
    own = _number(metrics.get(metric))
    run = _number(seen.get("released_model")) if own is None else own
    found = {name: value for name in ALONE if (value := _number(seen.get(name))) is not None}
    if run is None or not found:
        return None
    order = min if metric in _FALLING else max
    best = order(found, key=lambda name: found[name])
    data = result.get("data")
    nodes = isinstance(data, Mapping) and data.get("task") == "node"
    return Worth(
        metric,
        run,
        best,
        found[best],
        _margin(metric, run, found[best], result.get("test_records")),
        tuple(name for name in ON_NODES if nodes and name not in found),
        _rare(metric, result.get("test_commonest")),
        result.get("algorithm") in _SHARING_NOTHING,
    )


def in_words(compared: Worth) -> str:
    """Return who is ahead as a sentence or two."""
    metric = compared.metric.removeprefix("test_").replace("roc_auc", "ROC-AUC")
    metric = metric.upper() if compared.metric in _FALLING else metric
    figures = f"{metric} {compared.run:.4f} beside {compared.value:.4f} of {compared.best}"
    beats, loses, level = _ALONE if compared.alone else _TOGETHER
    verdict = beats if compared.ahead > 0 else loses if compared.ahead < 0 else level
    sentence = f"{verdict} ({figures})."
    if 0 < abs(compared.ahead) < compared.margin:
        sentence += (
            f" So small a difference may be chance (two standard errors: {compared.margin:.4f})."
        )
    if compared.without:
        sentence += f" Not compared with: {', '.join(compared.without)}."
    if compared.commonest is not None:
        sentence += f" {_little(compared.commonest)}"
    return sentence


def little(result: Mapping[str, Any]) -> str:
    """Return the sentence that an accuracy says little, where it does; else nothing.

    Args:
        result: ``result.json``, of which anybody may have written anything.
    """
    share = _rare(str(result.get("headline")), result.get("test_commonest"))
    return "" if share is None else _little(share)


def _little(share: float) -> str:
    return (
        f"Accuracy says little here: {math.floor(100 * share)} % of the test records are of one "
        "class; evaluate gives the AUC of this model at one site, and references have none."
    )


def table(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the label and the value of every reference that has one, in the order of `run`."""
    seen = result.get("references")
    given = seen if isinstance(seen, Mapping) else {}
    labels = {**ALONE, **GATHERED}
    return [
        (label, f"{value:.4f}")
        for name, label in labels.items()
        if (value := _number(given.get(name))) is not None
    ]


def not_computed(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the wanted references that have no value, each with the reason in words."""
    reasons = result.get("not_computed")
    if not isinstance(reasons, Mapping):
        return {}
    labels = {**ALONE, **GATHERED}
    told = {name: why for name, why in reasons.items() if name in labels and isinstance(why, str)}
    return {name: _WHY[why] for name, why in told.items() if why in _WHY}


def _rare(metric: str, share: object) -> float | None:
    known = _number(share)
    return known if metric == "test_accuracy" and known and RARE < known <= 1.0 else None


def _margin(metric: str, run: float, value: float, records: object) -> float:
    if metric != "test_accuracy" or type(records) is not int or not 0 < records < _MOST:
        return 0.0
    spread = run * (1 - run) + value * (1 - value)
    return 2.0 * math.sqrt(max(spread, 0.0) / records)


def _number(value: object) -> float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return float(value) if type(value) is int and abs(value) < _MOST else None
