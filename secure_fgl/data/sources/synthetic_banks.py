"""A generated graph of customers and transactions at several banks. Nothing in it is real.

Every bank keeps its customers' accounts and the transactions that these customers send; a
transaction is a node joined to its sender and to its receiver, who may bank elsewhere. The label
says whether a node is risky. It exists so that a pilot can be tried without anybody's data.

How it is drawn:

1. Each customer has a hidden exposure, near 1 in the risky part and near -1 in the rest, and
   follows one of several schemes; a bank sees one scheme more than the others.
2. A customer pays the likest of eight candidates, in exposure and scheme, so joined nodes tend to
   agree (homophily). Some payments go to other banks.
3. A transaction has its sender's scheme, and the mean exposure of its ends with noise. The label is
   exposure > 0, flipped for a small share of nodes, so nobody can be perfect.
4. Features: two columns tell customers from transactions; in the others the risky show their
   exposure along the direction of their scheme, under noise that hides it from a single node, plus
   a small offset of each bank (its own way of recording).

So a node's neighbours carry what its own features do not (a GNN beats the same network without
edges), and a bank alone has seen too little of the other banks' schemes (federation beats training
alone). A federation does not pay here all the same: since joined nodes agree and every bank knows
many labels, a bank's own labels run along its own edges are better than any model, and nothing is
sent for them (`evaluation.references`). `synthetic_lenders` is a case in which it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data._folder import unknown
from secure_fgl.data.records import Graph
from secure_fgl.data.sources._shared.files import Shape

__all__ = ["NAMES", "OPTIONS", "describe", "load"]

NAMES: Mapping[str, str] = {"synthetic_banks": "generated customers and transactions (synthetic)"}

OPTIONS: Mapping[str, int] = {"seed": 7, "banks": 5, "customers": 180, "transactions": 320}
"""Options and their defaults; `customers` and `transactions` count per bank."""

FEATURES = 40
RISKY = 0.4  # share of customers in the risky part: both classes common enough to score by accuracy
ELSEWHERE = 0.3  # share of transactions whose receiver is sought at any bank
CANDIDATES = 8
FLIPPED = 0.04
SCHEMES = 5
FAMILIAR = 0.3  # share of a bank's customers in the scheme that it sees most
SIGNAL = 0.6  # per-column signal against noise of 1: one node alone says little
OFFSET = 0.3

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes, from the options alone.

    Raises:
        ValueError: an unknown option, or one that is out of range.
    """
    given = _options(options)
    nodes = given["banks"] * (given["customers"] + given["transactions"])
    return Shape("node", FEATURES, 2, nodes, True)


def load(name: str, root: object, options: Mapping[str, Any]) -> Graph:
    """Generate the graph; the same options give the same bits. `root` is not looked at.

    Raises:
        ValueError: an unknown option, or one that is out of range.
    """
    given = _options(options)
    rng = np.random.default_rng(given["seed"])
    bank = np.repeat(np.arange(given["banks"]), given["customers"])
    customers, scheme = _customers(bank, rng)
    sender, receiver = _payments(customers, scheme, bank, given["transactions"], rng)
    between = (customers[sender] + customers[receiver]) / 2
    exposure = np.concatenate([customers, between + rng.normal(0.0, 0.2, len(sender))])
    owner = np.concatenate([bank, bank[sender]])
    y = (exposure > 0).astype(np.int64)
    flipped = rng.random(len(y)) < FLIPPED
    y[flipped] = 1 - y[flipped]
    payment = len(customers) + np.arange(len(sender))
    ends = np.concatenate([[sender, payment], [receiver, payment]], axis=1)
    edges = np.unique(ends, axis=1).astype(np.int64)
    schemes = np.concatenate([scheme, scheme[sender]])
    x = _features(exposure, schemes, owner, len(customers), rng)
    return Graph(name, edges, x, y, classes=2, synthetic=True, owner=owner)


def _options(options: Mapping[str, Any]) -> dict[str, int]:
    for option in options:
        if option not in OPTIONS:
            raise unknown("option of synthetic_banks", option, OPTIONS)
    given = {**OPTIONS, **options}
    for option, value in given.items():
        least = 0 if option == "seed" else 2
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"synthetic_banks.{option} must be a whole number of {least} or more")
    return given


def _customers(bank: Ints, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Exposure and scheme of every customer."""
    side = np.where(rng.random(len(bank)) < RISKY, 1.0, -1.0)
    familiar = rng.random(len(bank)) < FAMILIAR
    scheme = np.where(familiar, bank % SCHEMES, rng.integers(SCHEMES, size=len(bank)))
    return side + rng.normal(0.0, 0.3, len(bank)), scheme


def _payments(
    exposure: Floats, scheme: Ints, bank: Ints, per_bank: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Sender and receiver of every transaction, grouped by the sender's bank."""
    banks, customers = int(bank.max()) + 1, len(bank)
    each = customers // banks
    at = np.repeat(np.arange(banks), per_bank)
    sender = at * each + rng.integers(each, size=len(at))
    # Another customer of the same bank, or of any bank; never the sender.
    home = at[:, None] * each + rng.integers(each, size=(len(at), CANDIDATES))
    away = rng.integers(customers, size=(len(at), CANDIDATES))
    sought = np.where((rng.random(len(at)) < ELSEWHERE)[:, None], away, home)
    sought = np.where(sought == sender[:, None], (sought + 1) % customers, sought)
    unlike = scheme[sought] != scheme[sender][:, None]
    distance = np.abs(exposure[sought] - exposure[sender][:, None]) + unlike
    receiver = sought[np.arange(len(at)), distance.argmin(axis=1)]
    return sender, receiver


def _features(
    exposure: Floats, scheme: Ints, owner: Ints, customers: int, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    nodes, columns = len(exposure), FEATURES - 2
    direction = rng.normal(0.0, SIGNAL, (SCHEMES, columns))
    offset = rng.normal(0.0, OFFSET, (int(owner.max()) + 1, columns))
    shown = np.maximum(exposure, 0.0)[:, None] * direction[scheme]
    seen = shown + offset[owner] + rng.normal(size=(nodes, columns))
    kind = np.zeros((nodes, 2))
    kind[:customers, 0] = 1.0
    kind[customers:, 1] = 1.0
    return np.concatenate([kind, seen], axis=1).astype(np.float32)
