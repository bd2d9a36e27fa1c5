"""Sites whose held-out records have other labels: what is said of training must not notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from algorithms.tasks import Site
from secure_fgl.checking.probe import Probe

__all__ = ["held_out_labels"]


def held_out_labels(probe: Probe, sites: Sequence[Site]) -> None:
    """Give every record that trains nowhere another label, or another rating."""
    task, _ = probe.build()
    for site in sites:
        site.data = _changed(site.data, task.spec)


def _changed(data: Any, spec: Any) -> Any:
    others = ~torch.as_tensor(data.train)
    if spec.task == "rating":
        flipped = spec.lowest + spec.highest - data.rating
        return replace(data, rating=torch.where(others, flipped, data.rating))
    if data.y.ndim > 1:  # labels that are answered with 0 or 1, or not at all
        return replace(data, y=torch.where(others[:, None], 1 - data.y, data.y))
    moved = torch.where(others & (data.y >= 0), (data.y + 1) % spec.classes, data.y)
    return replace(data, y=moved, **({"kept": {}} if spec.task == "node" else {}))
