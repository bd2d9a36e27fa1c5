"""Graph neural networks, one per file; the folder is the registry.

A model's file is called like the model and offers

* `NAME`, equal to the file's name;
* `PROPAGATION`, "symmetric" or "mean" (see `algorithms.nn._sparse.propagation`);
* `build(features, classes, hidden, layers, dropout) -> GraphModel`, whose parameters are
  uninitialised: the task writes every one of them from a flat vector before use.

Parameters are ordered as the module registers them, layer by layer, weights (in, out) before the
bias. This order is the meaning of the flat vectors that travel.
"""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module
from typing import Literal, Protocol, cast

import torch
from torch import Tensor

from algorithms.nn._sparse import Features, Propagation

__all__ = ["GraphModel", "ModelFile", "model", "model_names"]


class GraphModel(torch.nn.Module):
    """A module from features and propagation to logits, with injected randomness."""

    def forward(
        self, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits, shape (N, C). `generator` feeds dropout and is untouched unless `training`."""
        raise NotImplementedError


class ModelFile(Protocol):
    """What a model's file offers."""

    NAME: str
    PROPAGATION: Literal["symmetric", "mean"]

    def build(
        self, features: int, classes: int, hidden: int, layers: int, dropout: float
    ) -> GraphModel:
        """An uninitialised model."""


def model_names() -> tuple[str, ...]:
    """Names of all models, sorted."""
    return tuple(
        sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name[0] != "_")
    )


def model(name: str) -> ModelFile:
    """The model's file by its name.

    Raises:
        ValueError: no such model; the message names the nearest one.
    """
    known = model_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no model is called {name!r}; {hint}known models: {', '.join(known)}")
    return cast(ModelFile, import_module(f"{__name__}.{name}"))
