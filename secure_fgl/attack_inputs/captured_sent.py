"""The algorithm and the model that a run's configuration names, ours or the auditor's plug-ins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from algorithms import nn
from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import DataSpec, Kind, Site, Task
from audits.attacks import Layers, Truth
from audits.evidence.steps import Case
from crypto.homomorphic.he import scheme as find_scheme
from crypto.masks import container
from crypto.samplers import Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import SCHEMES, encryption
from protocols.disclosures.sum.layout import Ring, SumLayout, Words, sum_layout, sum_ring
from protocols.disclosures.sum.masks import strange_mask, strange_masked
from protocols.errors import EvidenceError
from protocols.evidence.captures import captured_rounds, masked_digest
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Message, SumMessage
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.sessions.store.recording import Captured, keeps_given
from protocols.wire.envelope import Envelope, commitment
from secure_fgl.catalogue import build_algorithm, preferred_model
from secure_fgl.config import Config
from secure_fgl.data.kinds import model_name
from secure_fgl.muting import quiet
from secure_fgl.plugins.in_use import Plugins


@dataclass(frozen=True)
class RunCode:
    """Attributes: config, of the run; plugins, the auditor's own copies, held to the run's plan."""

    config: Config
    plugins: Plugins

    def bare(self, task: Task) -> Algorithm[Any]:
        """Return the run's algorithm without scores, over its own task or another one."""
        chosen = self.config.algorithm
        with self.plugins.in_use():
            return quiet(
                build_algorithm(chosen.name, task, epochs=chosen.epochs, options=chosen.options)
            )

    def model_name(self, kind: Kind) -> str:
        """Return the name of the run's model."""
        with self.plugins.in_use():
            preferred = preferred_model(self.config.algorithm.name)
        return model_name(kind, self.config.model, preferred)


# --- Is what an audit computes again what a client said? Else its controls would be another run's
# ---

Arrays = Mapping[str, npt.NDArray[np.float64]]


def rounded(layout: SumLayout, messages: Sequence[Message], kind: type[Message]) -> Message:
    """Return a message as it leaves a client: clipped and on the grid, to within one step.

    The stream decides rounding only, so any will do.
    """
    integers, _ = layout.encode([m for m in messages if type(m) in layout.kinds], Stream(bytes(32)))
    return layout.decode(integers, 1)[kind]


def agree(
    layout: SumLayout,
    said: Sequence[Arrays],
    seen: Arrays,
    kind: type[Message],
    unknown: int = 0,
) -> None:
    """Raise EvidenceError unless what was seen is the sum of what was said.

    Args:
        layout: of the vector; its grids say how far rounding may be off.
        said: what every client that counts said, rounded.
        seen: their total; of one client its upload.
        kind: the message.
        unknown: how many more clients count, whose messages nobody can compute again. What is left
            for them must be something that so many clients can say: each of them could have said
            just that, so the total is one that the receiver may have read.

    Raises:
        EvidenceError: at step ``captured``.
    """
    for column in layout.columns:
        name = column.field.name
        if column.message != kind.__name__ or name not in seen:
            continue
        rest = seen[name] - np.sum([one[name] for one in said], axis=0)
        slack = 0.0 if column.grid is None else 2.0 * len(said) * column.grid.step
        if column.grid is not None:
            right = np.abs(rest) <= slack + unknown * column.grid.bound
        else:
            right = rest >= 0.0 if unknown else rest == 0.0
        if not np.all(right):
            raise EvidenceError(
                "captured",
                f"{kind.__name__}.{name}, computed again, is not what left; "
                "the data, the configuration or the code are other than in the run",
            )


# --- Where the parts of a model lie in what is said of it ---
#
# Our models store weights (in, out). Those from outside may store them (out, in) as
# `torch.nn.Linear` does: the module says so of such layers, and the shape of other matrices where
# it can.


class _Part(NamedTuple):
    """One parameter: where it lies, its shape as it is stored, and what enters and leaves it."""

    place: slice
    shape: tuple[int, ...]
    enters: int = 0
    leaves: int = 0
    turned: bool = False


def outside(task: Any) -> frozenset[str] | None:
    """Return which weights of a model from outside are stored (out, in); None for one of ours."""
    import torch

    if nn.maker(getattr(task, "_file", None)) is None:
        return None
    modules = task.module().named_modules()
    kind = torch.nn.Linear
    return frozenset(f"{n}.weight".lstrip(".") for n, made in modules if isinstance(made, kind))


def layers_of(layout: Any, spec: Any, size: int, turned: Collection[str] | None = None) -> Layers:
    """Return where first and last layer lie in the first `size` values of a flat vector.

    Args:
        layout: name and shape of every parameter, in the vector's order.
        spec: of the data.
        size: of what is said; FedPer leaves the head out.
        turned: weights that are stored (out, in); None: of a model of ours, which has none.
    """
    parts = list(_parts(layout, size, turned))
    if turned is not None:
        parts = _by_shape(parts, spec)
    first = next((part for part in parts if part.enters == spec.features), None)
    weights = [part for part in parts if part.leaves == spec.classes]
    biases = [part for part in parts if part.shape == (spec.classes,)]
    weight, bias = _last(parts, weights, biases, spec.features if turned is not None else None)
    after = [p for p in parts if first is not None and p.place.start == first.place.stop]
    first_bias = after[0] if after and len(after[0].shape) == 1 else None
    return Layers(
        first=_placed(first),
        first_bias=_placed(first_bias),
        last_weight=_placed(weight),
        last_bias=_placed(bias),
        turned=frozenset(p.place.start for p in (first, weight) if p is not None and p.turned),
        foreign=turned is not None,
    )


def _parts(layout: Any, size: int, turned: Collection[str] | None) -> Iterator[_Part]:
    start = 0
    for name, shape in layout:
        place = slice(start, start + int(np.prod(shape)))
        start = place.stop
        if start > size:
            return
        if len(shape) != 2:
            yield _Part(place, tuple(shape))
            continue
        other = turned is not None and name in turned
        enters, leaves = reversed(shape) if other else shape
        yield _Part(place, tuple(shape), enters, leaves, other)


def _by_shape(parts: list[_Part], spec: Any) -> list[_Part]:
    """Return the parts of a model from outside; where no first or last layer fits, turned ones."""
    ends = {"enters": spec.features, "leaves": spec.classes}
    missing = [(end, n) for end, n in ends.items() if all(getattr(p, end) != n for p in parts)]

    def other(part: _Part) -> _Part:
        made = part._replace(enters=part.leaves, leaves=part.enters, turned=True)
        fits = any(getattr(made, end) == width for end, width in missing)
        return made if fits and not part.turned else part

    return list(map(other, parts))


def _last(
    parts: list[_Part], weights: list[_Part], biases: list[_Part], features: int | None
) -> tuple[_Part | None, _Part | None]:
    """Return weight and bias of the last layer.

    Of a model from outside a shortcut from the `features` gives way to a layer above another one,
    and the bias is the weight's own, if it has one.
    """
    if features is None or not weights:
        return next(reversed(weights), None), next(reversed(biases), None)
    weight = ([part for part in weights if part.enters != features] or weights)[-1]
    own = [bias for bias in biases if bias.place.start == weight.place.stop]
    return weight, next(reversed(own or biases), None)


def _placed(part: _Part | None) -> Any:
    return None if part is None else (part.place, part.shape)


# --- Which messages of a run hold a change of the model, and their values ---


def says_updates(case: Case) -> bool:
    """Tell whether any planned message holds a change of the model."""
    fields = (f for item in case.plan.items for m in item.messages for f in m.fields)
    return any(field.name == "delta" for field in fields) or weighs(case)


def weighs(case: Case) -> bool:
    """Tell whether clients send vectors to be weighed: less what they were given, an update."""
    return any(
        field.shape and field.dtype in ("f4", "f8")
        for item in case.plan.all_of(Disclosure.WEIGHTED_SUM, Step.UP)
        for message in item.messages
        for field in message.fields
    )


def updates(exchange: Exchange) -> list[type[SumMessage]]:
    """Return the message of an exchange that holds a change of the model."""
    sums = (kind for kind in exchange.back if issubclass(kind, SumMessage))
    return [kind for kind in sums if any(f.name == "delta" for f in kind.fields)][:1]


def fields(*messages: Message) -> Arrays:
    """Return the fields of messages by name, as float64."""
    return {
        field.name: np.asarray(getattr(message, field.name), dtype=np.float64)
        for message in messages
        for field in message.fields
        if field.wire != "bytes"
    }


# --- What is true of a client, to hold an attack's guesses against. It stays with the client ---


def truth_of(site: Site, spec: DataSpec, hops: int) -> Truth:
    """Return labels of the training records, and features of who trained and who had no influence.

    Args:
        site: the client's.
        spec: of the data; tasks without classes have no label counts.
        hops: how far a model of this depth looks from a training node.
    """
    if spec.task == "node":
        return _of_nodes(site, spec, hops)
    return Truth(labels=labels_of(site, spec))


def labels_of(site: Site, spec: DataSpec) -> Any:
    """Return the training records per class, int64 (C,); None where a record has no one class."""
    data: Any = site.data
    if spec.task == "rating" or np.asarray(data.y).ndim != 1:
        return None
    return _counted(np.asarray(data.y)[np.asarray(data.train, dtype=bool)], spec.classes)


def items_of(site: Site, spec: DataSpec) -> Any:
    """Return the numbers of the items that a client trains on, int64 (k,); None: it rates none."""
    if spec.task != "rating":
        return None
    data: Any = site.data
    return np.asarray(data.items)[np.unique(data.item[data.train].numpy())].astype(np.int64)


def ratings_of(site: Site) -> Any:
    """Return a client's mean training rating of each of `items_of`, float64 (k,)."""
    data: Any = site.data
    train = data.train.numpy()
    place = np.unique(data.item.numpy()[train], return_inverse=True)[1]
    total = np.bincount(place, weights=data.rating.numpy()[train].astype(np.float64))
    return total / np.bincount(place)


def tested_of(site: Site) -> int:
    """Return how many test records a client has."""
    data: Any = site.data
    return int(np.count_nonzero(np.asarray(data.test)))


def _counted(labels: Any, classes: int) -> Any:
    known = labels[labels >= 0].astype(np.int64)
    return np.bincount(known, minlength=classes).astype(np.int64)


def _of_nodes(site: Site, spec: DataSpec, hops: int) -> Truth:
    data: Any = site.data
    train, edges = data.train.numpy(), data.edges.numpy()
    nodes = len(train)
    ones = np.ones(edges.shape[1], dtype=np.int64)
    links = sp.coo_matrix((ones, (edges[0], edges[1])), shape=(nodes, nodes)).tocsr()
    links = links + links.T
    reached = train | data.common.numpy()  # what all were given is nobody's secret
    for _ in range(hops):
        reached = reached | (links @ reached.astype(np.int64) > 0)
    members, outsiders = rows_of(data.x, train), rows_of(data.x, ~reached)
    # Equal features cannot be told apart by anybody: such rows are on neither side.
    known = {row.tobytes() for row in members}
    kept = np.asarray([row.tobytes() not in known for row in outsiders], dtype=bool)
    labels = labels_of(site, spec)
    return Truth(labels=labels, members=members, outsiders=outsiders[kept])


def rows_of(x: Any, wanted: Any) -> Any:
    """Return the chosen rows of dense or sparse features, dense."""
    if isinstance(x, Sparse):
        parts = (x.matrix.values(), x.matrix.col_indices(), x.matrix.crow_indices())
        arrays: Any = tuple(part.numpy() for part in parts)
        whole: Any = sp.csr_matrix(arrays, shape=(x.matrix.shape[0], x.matrix.shape[1]))
        rows = whole[wanted].toarray()
    else:
        rows = x.numpy()[wanted]
    return np.ascontiguousarray(rows, dtype=np.float32)


# --- Is what a client captured what left, and was it masked? Else EvidenceError at ``captured``
# ---
#
# The captured envelopes are held against the ledger's commitments. The body of a masked one is
# sealed or encrypted, so the client keeps the masked vector beside it
# (`protocols.evidence.captures`); the ledger binds that too. It must look uniform, by itself and
# once what the client said, computed again, is taken off (`protocols.disclosures.sum.masks`). That
# the vector which was kept and recorded is the one which was sealed is the word of the client's own
# gateway.

COMPUTED = (
    Disclosure.SUM,
    Disclosure.MIXED,
    Disclosure.NOISED,
    Disclosure.SIMILARITY,
    Disclosure.WEIGHTED_SUM,
    Disclosure.NEIGHBOUR_SUM,
)
"""Uploads that are captured, and computed again."""

_BROUGHT = (Disclosure.MIXED, Disclosure.SIMILARITY)
"""What an Ask brings to the aggregator beside totals, and is looked at."""


def must_say(case: Case, form: Form[Any]) -> dict[str, set[int]]:
    """Return, by client, the exchanges in which it sent, or took, what was to be captured."""
    handed = {exchange.name for exchange in form.exchanges if keeps_given(exchange)}
    found: dict[str, set[int]] = {}
    for sent in case.ledger_index.releases():
        looked = (sent.step is Step.UP and sent.part in COMPUTED) or (
            sent.step is Step.ACK and sent.ask in handed
        )
        if looked and _captured(case, form, sent.ask, sent.round):
            found.setdefault(sent.party, set()).add(sent.exchange)
    return found


def must_have(case: Case, form: Form[Any]) -> set[int]:
    """Return the Asks whose totals, mixtures or cosines the aggregator was to capture."""
    items = (item for part in _BROUGHT for item in case.plan.all_of(part, Step.UP))
    brings = {item.exchange for item in items}
    return {
        ask.number
        for ask in case.exchanges.all.values()
        if (ask.summed or ask.name in brings)
        and not ask.lost(case.plan.smallest_cohort)
        and _captured(case, form, ask.name, ask.round)
    }


def _captured(case: Case, form: Form[Any], exchange: str, round: int) -> bool:
    """Tell whether an Ask was to be captured."""
    found = [e for e in form.exchanges if e.name == exchange and e.per_round]
    return bool(found) and round in captured_rounds(case.policy.capture, case.plan.rounds)


def summed(case: Case, exchange: Exchange) -> tuple[SumLayout, Ring]:
    """Return how what an exchange sums was laid out, and how it stood in what was summed."""
    chain = case.policy.chain(Disclosure.SUM)
    item = case.plan.find(exchange.name, Disclosure.SUM, Step.UP)
    kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
    layout = sum_layout(kinds, chain, {**case.plan.dims, **item.dims})
    wanted = encryption(chain)
    scheme = find_scheme(SCHEMES[wanted]) if wanted else None
    return layout, sum_ring(
        layout, chain, len(case.plan.clients), scheme, item.margin, checked=item.checked > 0
    )


def check_sent(case: Case, exchange: Exchange, client: str, answer: Captured) -> None:
    """Hold a captured answer against its client's ledger, and its sum against what masks make.

    Raises:
        EvidenceError: an envelope is not the ledger's, or its vector is not masked as planned.
    """
    known = {
        entry["commitment"]: entry
        for entry in case.ledger_index.entries.get(client, ())
        if entry["kind"] == "release" and entry["exchange"] == answer.number
    }
    sums = {item.id for item in case.plan.all_of(Disclosure.SUM, Step.UP)}
    for data in answer.sent:
        envelope = Envelope.decode(data)
        if (left := commitment(envelope)) not in known:
            raise EvidenceError(
                "captured", f"a captured envelope of {client} is not what its ledger says left"
            )
        header = envelope.header
        if header.item in sums and find(case.policy.chain(Disclosure.SUM), "mask"):
            words, ring = _inside(answer, header.item), summed(case, exchange)[1]
            whole = words is not None and words.shape == (ring.size,)
            if words is None or not whole or words.dtype != container(ring.modulus):
                raise EvidenceError("captured", f"{client} lacks a masked vector that it sent")
            if known[left].get("masked") != masked_digest(header.nonce, words):
                raise EvidenceError(
                    "captured", f"a masked vector of {client} is not what its ledger says left"
                )
            _refuse(client, strange_masked(words, ring))


def check_said(
    case: Case, exchange: Exchange, client: str, answer: Captured, said: Sequence[Message]
) -> None:
    """Take what a client said off the masked vector that left: what is left must be masks.

    Rounding is drawn anew, so a coordinate without a mask may be a step away from nothing; and
    where noise was added or drawn, nobody can compute what was said. A good mask passes all the
    same, and `check_sent` looks at the vector alone.

    Args:
        case: the run.
        exchange: what was asked.
        client: who answered.
        answer: what `check_sent` took.
        said: its messages, computed again.

    Raises:
        EvidenceError: coordinates left as they were.
    """
    words = _inside(answer, case.plan.find(exchange.name, Disclosure.SUM, Step.UP).id)
    if words is not None:
        layout, ring = summed(case, exchange)
        mine = [message for message in said if type(message) in layout.kinds]
        bare = ring.residues(layout.encode(mine, Stream(bytes(32)))[0])
        _refuse(client, strange_mask(bare, words, ring.modulus))


def _inside(answer: Captured, item: str) -> Words | None:
    return answer.inside.get(item) if answer.inside else None


def _refuse(client: str, why: str) -> None:
    if why:
        raise EvidenceError("captured", f"what {client} sent was not masked: {why}")
