"""What an attack is given, and what it gives back.

An attack sees one client's round as its victim and its attacker see it: what everybody was given,
what it computed, what the receiver learnt of that, and the truth. It runs where the truth lies;
figures leave it. Nothing here prints itself: all of it is private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from audits.attacks._exposed.exposure import Array, Counts, Exposure, Floats, Truth, change
from audits.attacks._exposed.redrawn import Redrawn
from audits.attacks._models.canaries import Canaries
from audits.attacks._models.released import Released
from audits.attacks._shared.answers import Answers
from audits.attacks._shared.compared import Compared
from audits.attacks._shared.row_systems import RowsTold
from audits.attacks._shared.tags import Tagged
from audits.evidence.steps import Case

__all__ = [
    "Array",
    "Bags",
    "Counts",
    "Exposure",
    "Floats",
    "ItemRows",
    "Layers",
    "Material",
    "Mixtures",
    "Play",
    "Redrawn",
    "Replica",
    "Rows",
    "Truth",
    "change",
]

Place = tuple[slice, tuple[int, int]]
"""Where a matrix lies in the flat vector, and its shape as it is stored there (C order)."""


@dataclass(frozen=True, repr=False)
class Layers:
    """Where a model's parts lie in its flat vector; public.

    Attributes:
        first: weight of the first layer, (features, hidden), if input features enter linearly.
        first_bias: bias of the first layer, (hidden,), where it follows its weight.
        last_weight: weight of the last layer, (hidden, classes): weights are stored (in, out).
        last_bias: bias of the last layer, (classes,).
        turned: where weights begin that are stored the other way round, (out, in).
        foreign: the model is from outside: a layer that is not known here may be there yet.
    """

    first: Place | None = None
    first_bias: tuple[slice, tuple[int]] | None = None
    last_weight: Place | None = None
    last_bias: tuple[slice, tuple[int]] | None = None
    turned: frozenset[int] = frozenset()
    foreign: bool = False

    def part(self, vector: Array, place: tuple[slice, tuple[int, ...]]) -> Array:
        """Return one part of a flat vector in its own shape, of a weight always (in, out).

        Raises:
            ValueError: the vector does not hold that part.
        """
        where, shape = place
        found = np.asarray(vector, dtype=np.float64).ravel()[where]
        if found.size != int(np.prod(shape)):
            raise ValueError(
                "a layer does not lie where the model's layout says; the vector is another "
                "model's, or the layout was made for other options"
            )
        made: Array = found.reshape(shape)
        return made.T if where.start in self.turned else made


@dataclass(frozen=True, repr=False)
class Mixtures:
    """One client's mixtures in one round.

    Attributes:
        client, round: which.
        seen: what the receiver read, a row a group: ``features`` (m, P, D), and ``label`` (m, C)
            if labels are said.
        tables: (N, D) each, the vectors of all records of the client's graph: ``computed``, those
            that were mixed; ``begun``, by the model with which the round began.
        index: (members, P), the row of the table at each position; the first is the centre.
        groups: (members,), the mixture of each; -1: it stayed away in this round.
        labels: (members,), the class of each centre; None where none are said.
        rings: how many positions stand at each distance from the centre, in their order.
        links: (N, N), row v the mean over the neighbours of v; None if there is no graph.
    """

    client: str
    round: int
    seen: Mapping[str, Array]
    tables: Mapping[str, Array]
    index: Counts
    groups: Counts
    labels: Counts | None
    rings: tuple[int, ...] = (1,)
    links: sp.csr_array | None = None


Rows = tuple[Counts, Array]
"""Numbers of items, (k,), each at most once, and the row of each, (k, h)."""


@dataclass(frozen=True, repr=False)
class ItemRows:
    """One client's gradient of an item table in one round.

    Attributes:
        client, round, ask: which; clients of one Ask were summed together.
        catalogue: how many items there are.
        held: (k,), the numbers of those that the client trains on.
        raw: the rows that it computed, before protection.
        seen: the rows that the receiver read: the client's own where they left by themselves, else
            those of the total in which it is; None: nothing.
        cohort: clients whose rows `seen` holds; 1: its own alone.
        ratings: (k,), how it rates `held`, a number an item; None: nobody can tell here.
        table: (items, h), what was handed out beside: each item's vector and bias; None likewise.
    """

    client: str
    round: int
    ask: int
    catalogue: int
    held: Counts
    raw: Rows
    seen: Rows | None
    cohort: int
    ratings: Array | None = None
    table: Array | None = None


Play = Callable[[Sequence[Floats], np.random.Generator], list[list[Exposure]]]
Lead = Callable[[Callable[[Floats], Array], int, bool, np.random.Generator], list[list[Exposure]]]


@dataclass(frozen=True, repr=False)
class Bags:
    """The records of one client, each a bag of words; never leaves it.

    Attributes:
        table: (N, F), the features of every node of its graph; no number is below zero.
        train: (N,), whether it trains on that node.
        own: (N,), what its own features weigh in what the first layer makes of a node's row.
    """

    table: sp.csr_array
    train: npt.NDArray[np.bool_]
    own: Array


@dataclass(frozen=True, repr=False)
class Replica:
    """A run's code and data once more: clients that answer any model, without a run.

    They answer by the algorithm's own code, under the run's policy.

    Attributes:
        model, depth: which network, and how many layers.
        optimiser, lr: of a client's first step; public settings.
        decay: the share of a weight that weight decay takes off in a round, roughly.
        layers: where the model's parts lie in its weights.
        start: (d,), the weights with which the run begins; they follow from a public seed.
        ask: name of the Ask that hands out the model.
        bags: client -> its records, of which the attacker knows what the attack says.
        norm, bound: of the policy's clip, in weights.
        weighted: whether a change is said times the number of training records.
        largest: the largest change of one weight that a client can say, as it is said.
        step: of the grid on which it stands.
        noise: standard deviation of all noise on what the receiver reads; 0: none.
        play: gives all clients one model a round and returns, a list a round, what each said and
            what the receiver read of it; the generator decides rounding and noise.
        leader: the client that `lead` lets steer, the first by name.
        lead: plays so many rounds in which all clients compute each model from the total, and
            `leader` adds to it what brings the model as near as it can to what the function makes
            of it; within the clip, or (True) as far as the total's range lets it. Returns, a list a
            round, what each other client said, and the total of these.
    """

    model: str
    depth: int
    optimiser: str
    lr: float
    decay: float
    layers: Layers
    start: Floats
    ask: str
    bags: Mapping[str, Bags]
    norm: Literal["linf", "l2"]
    bound: float
    weighted: bool
    largest: float
    step: float
    noise: float
    play: Play
    leader: str
    lead: Lead


@dataclass(frozen=True, repr=False)
class Material:
    """Everything that the attacks on one run may use.

    Attributes:
        case: the run's documents and ledgers.
        layers: the model's layout; None if it has none that is known.
        exposures: captured rounds; empty when the policy forbids capture.
        mixed: captured mixtures, likewise.
        items: captured gradients of item rows, likewise.
        tagged: captured matchings, likewise.
        compared: captured cosines; None if nobody is compared, or nothing could be read.
        answers: to clients' generators, computed again; None if none are given, or none could be.
        rows: what receivers are told of rows, computed again; None if nothing. Needs no capture.
        replica: the clients once more, for models that nobody gave them; needs no capture.
        tested: client -> its number of test records; empty if nobody can count. Needs no capture.
        released: models that were handed out; None if none could be looked at. Needs no capture.
        canaries: made-up records; None if none could be made again. Needs no capture.
        unreleased, uncoined: why there are no such models, or records; empty if there are some.
        redrawn: audit replicas of the captured rounds; see there.
        late: tells whether the time for attacks is used up.
        missing, unasked: why there are no captures, or counts; empty if there are some.
        unread: updates left, and none of them could be looked at.
        simulated: whether all roles ran in one process.
        units: clients of whom rows are made; empty: all. At one site it is that site's client: the
            others' data and messages are drawn, and serve as controls alone.
    """

    case: Case
    layers: Layers | None = None
    exposures: tuple[Exposure, ...] = ()
    mixed: tuple[Mixtures, ...] = ()
    items: tuple[ItemRows, ...] = ()
    tagged: tuple[Tagged, ...] = ()
    compared: Compared | None = None
    answers: Answers | None = None
    rows: RowsTold | None = None
    replica: Replica | None = None
    tested: Mapping[str, int] = field(default_factory=dict)
    unasked: str = ""
    released: Released | None = None
    unreleased: str = ""
    canaries: Canaries | None = None
    uncoined: str = ""
    redrawn: Redrawn = field(default_factory=Redrawn)
    late: Callable[[], bool] = lambda: False
    missing: str = ""
    unread: bool = False
    simulated: bool = False
    units: frozenset[str] = frozenset()
