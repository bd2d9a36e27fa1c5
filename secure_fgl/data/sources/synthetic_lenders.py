"""A generated graph of borrowers at lenders that know unequally much. Nothing in it is real.

A borrower is a node, a payment between two of them an edge, and the label says whether the borrower
will default. `synthetic_banks` is a case in which each bank's own labels and edges are enough, so
that a federation does not pay. This one was made for the opposite, by two things that real
consortia report:

* **Outcomes are known late, and not to everybody.** With `split: published` two of six lenders have
  been in business for long and know the outcome of a quarter of their borrowers, three are young
  and know few, and one has just begun and knows none. At each of them four in ten of the borrowers
  whose outcome it does not know are the test: what is asked of a model is how it does there.
* **Whom somebody pays tells little.** The receiver of a payment is the likelier in risk of two
  candidates in one payment of three, and anybody in the others, so neighbours agree little more
  than chance; nothing that runs labels along edges gets far.

What makes a federation worth something here is assumed, too: a borrower who will default shows it
in the same way at every lender, up to a small offset of each (its own way of recording). Where
borrowers of different lenders have nothing in common a federation has nothing to offer, and this
set says nothing about how common either case is.

How it is drawn: a hidden exposure, near 1 for the risky 40 % of borrowers and near -1 for the
others; the label is exposure > 0, flipped for a small share. The risky follow one of three schemes
and show their exposure along its direction in the features, under noise that takes many labelled
borrowers to see through: one lender alone has too few of them, all together have enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Graph, Masks
from secure_fgl.data.sources._shared.files import Shape, check_known, published, whole

__all__ = ["NAMES", "OPTIONS", "describe", "load"]

NAMES: Mapping[str, str] = {"synthetic_lenders": "generated borrowers and payments (synthetic)"}

OPTIONS: Mapping[str, int] = {"seed": 7, "borrowers": 400}
"""Options and their defaults; `borrowers` counts per lender. `split: published` is one more."""

KNOWN: tuple[tuple[float, float], ...] = (
    (0.15, 0.10), (0.15, 0.10), (0.05, 0.05), (0.05, 0.05), (0.05, 0.05), (0.0, 0.0),
)  # fmt: skip
"""Shares of each lender's borrowers whose outcomes train, and validate; old, young, new."""

FEATURES = 24
RISKY = 0.4
PAYMENTS = 2  # a borrower's, on average and sent
CHOSEN = 1 / 3  # share of payments whose receiver is the likelier of two candidates
FLIPPED = 0.04
SCHEMES = 3
SIGNAL = 0.7
OFFSET = 0.2
TEST = 0.4
FEWEST = 40  # borrowers: below, a share of 0.05 is no borrower or two

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes, from the options alone.

    Raises:
        ValueError: an unknown option, or one that is out of range.
    """
    return Shape("node", FEATURES, 2, len(KNOWN) * _options(name, options)["borrowers"], True)


def load(name: str, root: object, options: Mapping[str, Any]) -> Graph:
    """Generate the graph; the same options give the same bits. `root` is not looked at.

    Raises:
        ValueError: an unknown option, or one that is out of range.
    """
    given = _options(name, options)
    rng = np.random.default_rng(given["seed"])
    each = given["borrowers"]
    owner = np.repeat(np.arange(len(KNOWN)), each)
    risky = rng.random(len(owner)) < RISKY
    exposure = np.where(risky, 1.0, -1.0) + rng.normal(0.0, 0.3, len(owner))
    y = (exposure > 0).astype(np.int64)
    flipped = rng.random(len(y)) < FLIPPED
    y[flipped] = 1 - y[flipped]
    edges = _payments(exposure, each, rng)
    x = _features(exposure, owner, rng)
    roles = _roles(each, rng) if published(name, options) else None
    return Graph(name, edges, x, y, classes=2, synthetic=True, owner=owner, public=roles)


def _options(name: str, options: Mapping[str, Any]) -> dict[str, int]:
    check_known(name, options, (*OPTIONS, "split"))
    published(name, options)
    given = {**OPTIONS, **options}
    return {
        "seed": whole(name, given, "seed", 0),
        "borrowers": whole(name, given, "borrowers", FEWEST),
    }


def _payments(exposure: Floats, each: int, rng: np.random.Generator) -> Ints:
    """Payments between borrowers of one lender, int64 (2, M), each pair once."""
    sender = np.repeat(np.arange(len(exposure)), PAYMENTS)
    home = (sender // each * each)[:, None]
    sought = home + rng.integers(each, size=(len(sender), 2))
    unlike = np.abs(exposure[sought] - exposure[sender][:, None])
    likelier = sought[np.arange(len(sender)), unlike.argmin(axis=1)]
    receiver = np.where(rng.random(len(sender)) < CHOSEN, likelier, sought[:, 0])
    ends = np.sort(np.stack([sender, receiver]), axis=0)
    return np.unique(ends[:, ends[0] != ends[1]], axis=1).astype(np.int64)


def _features(exposure: Floats, owner: Ints, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    scheme = rng.integers(SCHEMES, size=len(exposure))
    direction = rng.normal(0.0, SIGNAL, (SCHEMES, FEATURES))
    offset = rng.normal(0.0, OFFSET, (len(KNOWN), FEATURES))
    shown = np.maximum(exposure, 0.0)[:, None] * direction[scheme]
    return (shown + offset[owner] + rng.normal(size=shown.shape)).astype(np.float32)


def _roles(each: int, rng: np.random.Generator) -> Masks:
    """Whose outcome trains, validates and is asked for, by how much each lender knows."""
    masks = Masks(*(np.zeros(len(KNOWN) * each, dtype=bool) for _ in Masks._fields))
    for place, (train, val) in enumerate(KNOWN):
        order = place * each + rng.permutation(each)
        known = np.cumsum([round(train * each), round(val * each)])
        asked = known[1] + round(TEST * (each - known[1]))
        masks.train[order[: known[0]]] = True
        masks.val[order[known[0] : known[1]]] = True
        masks.test[order[known[1] : asked]] = True
    return masks
