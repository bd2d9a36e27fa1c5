"""Advice as table rows, JSON and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audits.attacks._shared.models import AttackRow
from audits.formats._markdown import plain
from audits.plots.frontier import Point
from audits.plots.frontier import frontier as drawn
from audits.report.words import visible
from secure_fgl.advising.choosing import advised, cost, frontier
from secure_fgl.advising.trials import Trial, worst

__all__ = ["HEAD", "cells", "document", "markdown", "plot", "sentence"]

HEAD = ("tried", "how", "validation", "cost", "test", "worst attack", "above prior", "verdict")


def cells(trial: Trial, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return a row of the table, by `HEAD`."""
    row, lost = worst(trial), cost(trial, trials)
    if trial.how == "not tried":
        return (trial.name, f"not tried: {trial.why_not}", "", "", "", "", "", "")
    return (
        f"{trial.name}: {trial.change}",
        trial.how,
        _number(trial.validation),
        _number(lost),
        _number(trial.test),
        f"{row.id} {row.what}" if row is not None else "",
        _gap(row),
        trial.verdict.replace("_", " "),
    )


def sentence(trials: Sequence[Trial], points: float) -> str:
    """Return what is advised, in words."""
    best = advised(trials, points)
    if best is not None:
        return (
            f"Advised: {best.name} ({best.change}): every attack that was asked for passes, at a "
            f"cost of {_number(cost(best, trials))} in validation {best.metric}."
        )
    names = ", ".join(trial.name for trial in frontier(trials)) or "nothing"
    return (
        f"Nothing that was tried passes at a cost of {points:g} points or less. On the frontier of "
        f"leakage and validation: {names}."
    )


def document(trials: Sequence[Trial], points: float) -> dict[str, Any]:
    """Return all of it as data."""
    best = advised(trials, points)
    return {
        "advised": best.name if best is not None else None,
        "frontier": [trial.name for trial in frontier(trials)],
        "points": points,
        "trials": [
            {**trial.model_dump(mode="json"), "verdict": trial.verdict, "cost": cost(trial, trials)}
            for trial in trials
        ],
    }


def markdown(trials: Sequence[Trial], points: float) -> str:
    """Return the table as a page."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for trial in trials:
        # What a policy refuses, an attack looked at or a score is called, the run's writer chose.
        lines.append(f"| {' | '.join(map(plain, cells(trial, trials)))} |")
    return "\n".join([*lines, "", plain(sentence(trials, points)), ""])


def plot(trials: Sequence[Trial]) -> str | None:
    """Return the plot as SVG; None where nothing has both a score and a leakage."""
    best, points = {trial.name for trial in frontier(trials)}, []
    for trial in trials:
        row = worst(trial)
        if row is None or row.gap is None or trial.validation is None:
            continue
        gap = (float(row.gap.value), float(row.gap.low), float(row.gap.high))
        points.append(Point(trial.name, trial.validation, *gap, trial.name in best))
    if not points:
        return None
    metric = next(trial.metric for trial in trials if trial.metric)
    shown = visible(str(drawn(points, metric)))
    return shown.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _gap(row: AttackRow | None) -> str:
    if row is None or row.gap is None:
        return ""
    return f"{row.gap.value} ({row.gap.low} to {row.gap.high})"
