"""What the sources share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from secure_fgl.data.graph import Graph

__all__ = ["Shape", "Source"]


class Shape(NamedTuple):
    """Public sizes of a data set: input features, classes, nodes, and whether it was generated."""

    features: int
    classes: int
    nodes: int
    synthetic: bool


class Source(Protocol):
    """What a file in this folder offers."""

    NAMES: Mapping[str, Any]

    def describe(self, name: str, options: Mapping[str, Any]) -> Shape:
        """Public sizes, without touching a file."""

    def load(self, name: str, root: Path | None, options: Mapping[str, Any]) -> Graph:
        """The data set."""
