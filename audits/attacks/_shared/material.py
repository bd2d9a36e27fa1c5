"""What an attack on a generator's gradients is given: answers to one client's fGen.

It stays where the truth lies, as all that attacks are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numpy.typing import NDArray

from audits.attacks._shared.exposed import Exposure, Redrawn, Truth, change
from audits.attacks._shared.models import Claim
from audits.attacks._shared.tags import Tagged
from audits.evidence.steps import Case

__all__ = [
    "TRIED",
    "UNTAKEN",
    "Answer",
    "Answers",
    "Array",
    "Bags",
    "Bools",
    "Canaries",
    "Candidates",
    "Compared",
    "Counts",
    "Exposure",
    "Floats",
    "ItemRows",
    "Layers",
    "Lead",
    "Material",
    "Matrix",
    "Mixtures",
    "Place",
    "Play",
    "Redrawn",
    "Released",
    "Replica",
    "RowSystem",
    "Rows",
    "RowsTold",
    "Truth",
    "change",
    "noted",
    "of_canaries",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Answer:
    """What one client said to another client's generator in one step.

    Attributes:
        client: whose records are in it.
        entered: (B, h + 1), what enters the last layer for each of B draws, and a one for its bias:
            known to who reads.
        drawn: (B, F), the features that were drawn: known likewise.
        matched: (B,), which of `Answers.candidates` each draw was held against; -1: none.
        raw: (h + 1, F), the gradient of the last layer and its bias, before protection.
        seen: the same of what the reader read: of this client alone, or of the sum it is in.
    """

    client: str
    entered: Array
    drawn: Array
    matched: NDArray[np.int64]
    raw: Array
    seen: Array


@dataclass(frozen=True, repr=False)
class Answers:
    """All that was looked at.

    Attributes:
        payload: ``P12``.
        what: whose message it is, in words.
        candidates: (N, F), features of records, of which the attacker asks which are in it.
        answers: two at least, of two clients.
    """

    payload: str
    what: str
    candidates: Array
    answers: tuple[Answer, ...]


# --- What an attack on cosines is given: matrices that were opened, and what is true of their
# clients ---
#
# It stays where the truth lies, as all that attacks are given.

Counts = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Matrix:
    """What one Ask opened.

    Attributes:
        round: of the run.
        places: (k,), which of the clients were compared, ascending.
        seen: (k, k), the cosines as they were opened.
        raw: (k, k), the cosines of the same vectors before protection, computed again.
        vectors: (k, d), these vectors, each of length 1; zeros stay zeros.
    """

    round: int
    places: Counts
    seen: Array
    raw: Array
    vectors: Array


@dataclass(frozen=True, repr=False)
class Compared:
    """Every captured matrix of a run.

    Attributes:
        payload: ``P15``; ``P14`` where the vectors themselves left in clear.
        clients: (K,), their names.
        matrices: by round; empty if none was opened in the captured rounds.
        alike: (K, K), how alike the clients' data are; None if nobody can say.
        by: what that is measured by, in words.
        records: (K,), how many training records each has.
    """

    payload: str
    clients: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    alike: Array | None
    by: str
    records: Counts

    def mean(self, side: str) -> Array:
        """Return the mean cosine of every two clients over all matrices, (K, K).

        Two who were never compared were in different clusters: they count as less alike than any
        who were.

        Args:
            side: ``seen`` or ``raw``.
        """
        count = len(self.clients)
        total, often = np.zeros((count, count)), np.zeros((count, count))
        for one in self.matrices:
            where = np.ix_(one.places, one.places)
            total[where] += getattr(one, side)
            often[where] += 1.0
        met = often > 0
        means = total / np.maximum(often, 1.0)
        found: Array = np.where(met, means, means[met].min(initial=0.0) - 1.0)
        return found


# --- What the attack on rows is given: what receivers are told, as equations, and what is true ---
#
# It stays where the truth lies, as all that attacks are given.


@dataclass(frozen=True, repr=False)
class RowSystem:
    """All rows that one receiver, or two that pool, were told, their own terms taken off.

    Attributes:
        who: the receivers, joined by ``+``.
        system: (rows, n), how often each other client's node enters each row.
        sums: (rows, F), what the terms add up to.
        terms: (n, F), the truth.
    """

    who: str
    system: Array
    sums: Array
    terms: Array


@dataclass(frozen=True, repr=False)
class RowsTold:
    """A run's rows, by the policy's rule and without it.

    Attributes:
        seen: by the policy's form, one system a receiver.
        pooled: the same of two receivers each.
        raw: as published: every row that a receiver asks for.
        tolerance: by how much the grid moves an entry.
    """

    seen: tuple[RowSystem, ...]
    pooled: tuple[RowSystem, ...]
    raw: tuple[RowSystem, ...]
    tolerance: float


# --- What attack A11 is given: made-up records, which of them trained, and models to ask of them
# ---

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


TRIED = " canaries"
"""Ends the text of each claim that is held against canaries."""

_CLOSED = "Not looked at, as the coins of its canaries were never opened: {}. {}"
_SHOWN = 4


@dataclass(frozen=True, repr=False)
class Canaries:
    """All canaries of a run; those that did not train are as if they had never been.

    Attributes:
        coins: client -> (m,), which of its canaries trained.
        features: client -> (m, F), where a canary is a node; empty otherwise.
        model: gives the model of a flat vector of weights; None if that is no whole model.
        confidence: gives how sure a model is of the truth of each canary of a client, (m,).
        alone: gives the model that a client makes of its own records, canaries that train among
            them; the number decides all chance in it.
        arrived: clients of which an update counted in some model; the others' canaries are in none
            that was handed out.
        controls: clients without canaries whose messages and models are null controls alone: at
            one site, those that were drawn.
        unopened: clients that have not opened their coins; nothing is known of their canaries.
    """

    coins: Mapping[str, Bools]
    features: Mapping[str, Floats]
    model: Callable[[Array], object | None]
    confidence: Callable[[object, str], Array]
    alone: Callable[[str, int], object]
    arrived: frozenset[str]
    controls: tuple[str, ...] = ()
    unopened: tuple[str, ...] = ()


def noted(given: Canaries, note: str) -> str:
    """Return a row's note, after the names of those whose coins were never opened."""
    if not given.unopened:
        return note
    more = ", …" if len(given.unopened) > _SHOWN else ""
    return _CLOSED.format(", ".join(given.unopened[:_SHOWN]) + more, note)


def of_canaries(claim: Claim) -> bool:
    """Tell whether a claim was held against a bound that canaries prove."""
    return claim.text.endswith(TRIED)


# --- What the attack on released models is given: models, records, and a way to train more models
# ---

UNTAKEN = "no client's record vouches for the model: that it is the run's is its aggregator's word"


@dataclass(frozen=True, repr=False)
class Candidates:
    """One client's records, of each of which it is asked whether it trained; never leaves it.

    Attributes:
        members: (N,), those that trained; the others were held out.
        known: (A, N), what is known of each without a model: degree, share of its class, closeness
            to the mean, and the like; any direction.
        marks: (N,), a digest of each record: equal ones are one record, whoever holds it.
    """

    members: Bools
    known: Array
    marks: npt.NDArray[np.bytes_]


@dataclass(frozen=True, repr=False)
class Released:
    """The models of a finished run, and its code and data once more.

    Attributes:
        task: ``node``, ``graph`` or ``rating``: what a record is.
        candidates: client -> its records.
        shared: name -> the model that all clients were given, whole; empty: there is none.
        own: client -> its own model, where that is another one than all were given.
        untaken: those of them that no client's ledger names.
        unshared: why no whole model is shared; empty if one is.
        unkept: why no client's own model could be looked at; empty if some could, or if each
            client keeps the shared one.
        train: gives a model that these clients train together, each on those of its candidates that
            are marked, by the run's model and local training and from its public start; the number
            decides all chance in it. One client trains alone.
        confidence: gives how sure a model is of the truth of each candidate of a client, (N,): the
            logit of the true class, or minus the distance to the true rating.
        read: client -> the mean of neighbours' models, its own among them, that the neighbour read
            in which it weighs most; and its own, as it gave it in that round. Needs captures.
        unread: why there is no such mean; empty if there are some, or if nobody mixes models.
    """

    task: str
    candidates: Mapping[str, Candidates]
    shared: Mapping[str, object]
    own: Mapping[str, object]
    train: Callable[[Mapping[str, Bools], int], object]
    confidence: Callable[[object, str], Array]
    untaken: frozenset[str] = frozenset()
    unshared: str = ""
    unkept: str = ""
    read: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    unread: str = ""


# --- What an attack is given, and what it gives back ---
#
# An attack sees one client's round as its victim and its attacker see it: what everybody was given,
# what it computed, what the receiver learnt of that, and the truth. It runs where the truth lies;
# figures leave it. Nothing here prints itself: all of it is private.

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
