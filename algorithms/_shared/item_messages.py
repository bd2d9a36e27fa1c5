"""The messages of recommenders with one user per client, see `algorithms._shared.items`."""

from __future__ import annotations

from protocols.messages import (
    MatchMessage,
    Matrix,
    NoisedMessage,
    ReleasedMessage,
    SumMessage,
    Vector,
    bounded,
    category,
    count,
    real,
)

__all__ = [
    "Expand",
    "HeldItems",
    "Holders",
    "ItemGradient",
    "ItemRows",
    "Near",
    "Next",
    "NoisedGradient",
    "Opinion",
    "Start",
    "Taste",
]


class Start(ReleasedMessage):
    """The shared part of the model; the whole item table, for everybody."""

    step: int = count(unit="round", meaning="rounds done so far")
    seed: int = count(unit="seed", meaning="seed of the starting weights and of the cohorts")
    weights: Vector = real("d", unit="weight", meaning="item table, biases and layer", wire="f4")
    told: Vector = count("items", unit="0 or 1", meaning="1: a gradient of this item may be said")


class Next(ReleasedMessage):
    """Asks for another block of rows of the gradient that the last `Start` asked for."""

    block: int = count(unit="block", meaning="which rows of the item table, from 1")


class Expand(ReleasedMessage):
    """Asks for what graphs are expanded by: which items a user holds, and its vector."""

    step: int = count(unit="round", meaning="rounds done so far")


class HeldItems(MatchMessage):
    """The items that one user trains on, to be compared with others', and the user's vector."""

    held: Vector = count(
        "items", unit="item", meaning="by public popularity: 1 + place where held, else 0", key=True
    )
    vector: Vector = real("hidden", unit="weight", meaning="the user's own vector")


class Near(MatchMessage):
    """What other users are like who hold the same items."""

    row: Vector = count("found", unit="item", meaning="1 + place of an item held; 0: padding")
    vectors: Matrix = real(
        "found", "hidden", unit="weight", meaning="a user who holds it, or a mean of some"
    )


class ItemGradient(SumMessage):
    """The gradient of one user's loss; zero in the row of every item that it did not rate.

    A block of rows, the same for all clients: by default the whole table. Past the table's end
    rows are zero. The shared part leaves with the first block.
    """

    rows: Matrix = real(
        "block",
        "row",
        unit="scale x loss/weight",
        meaning="gradient in an item's vector and bias",
        held=True,
    )
    shared: Vector = real("g", unit="scale x loss/weight", meaning="gradient in mean and layer")


class NoisedGradient(NoisedMessage):
    """The gradient of one user's loss, all rows, as one vector under the user's own noise."""

    rows: Matrix = real(
        "items", "row", unit="scale x loss/weight", meaning="gradient in an item's vector and bias"
    )
    shared: Vector = real("g", unit="scale x loss/weight", meaning="gradient in mean and layer")


class Taste(NoisedMessage):
    """How high one user rates, said once in a run under its own noise."""

    mean: float = bounded(unit="share of the scale", meaning="mean training rating of the user")


class Opinion(NoisedMessage):
    """How high one user rates, and one drawn of its items: whether it rates it above its mean.

    Said once in a run. Of the set of a user's items one is told; each stands for an equal share.
    """

    mean: float = bounded(unit="share of the scale", meaning="mean training rating of the user")
    opinions: Vector = category(
        "opinions", unit="share", meaning="items rated at or above the user's mean, then below it"
    )


class Holders(SumMessage):
    """Who trains on which item, said by each client once in a run; zeros in all later sums.

    Its total is how many users of the cohort trained on each item: it is disclosed, and a one says
    that somebody did, not who and not how.
    """

    held: Vector = count("items", unit="client", meaning="1: the user has a training rating of it")


class ItemRows(NoisedMessage):
    """One user's gradient by itself: the rows of the items that it rated, among others (published).

    The receiver reads every row. Only a policy with an Unsafe guard lets it out.
    """

    number: Vector = count("sent", unit="item", meaning="whose row stands here")
    rows: Matrix = real(
        "sent", "row", unit="loss/weight", meaning="gradient in an item's vector and bias"
    )
    shared: Vector = real("g", unit="loss/weight", meaning="gradient in mean and layer")
