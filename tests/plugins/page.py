"""The files that docs/own-algorithm.md writes, and changes of them."""

from __future__ import annotations

import re
from pathlib import Path

from secure_fgl.config import Config

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "own-algorithm.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """Return the page's blocks in one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.S)


FEDPROX, MODEL, DATA = blocks("python")
PARTITION = '''"""Every fifth node to one client."""

import numpy as np

KINDS = ("node",)


def assign(graph, clients, rng):
    return np.arange(graph.nodes) % clients
'''


def changed(*changes: tuple[str, str], text: str = FEDPROX) -> str:
    """Return a text with changes, each of which must apply."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def write(folder: Path, name: str = "my_fedprox", text: str = FEDPROX) -> Path:
    """Write a plug-in's file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(text, "utf-8")
    return file


def config(policy: str = "masks", **more: object) -> Config:
    """Return a small run of the page's algorithm."""
    return Config.parse(
        {
            "algorithm": {"name": "my_fedprox", "rounds": 2},
            "model": {"hidden": 8},
            "data": {
                "name": "synthetic_banks",
                "options": {"customers": 40, "transactions": 60},
                "partition": {"name": "by_owner", "clients": 5},
            },
            "policy": policy,
            **more,
        }
    )
