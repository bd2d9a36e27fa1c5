"""Which kind of payload an item is: the ids P01 to P21 of the audit's catalogue.

An envelope may be several at once: a sum under masks and encryption is a masked share and a
ciphertext on its way, and discloses an aggregate; counts beside an update are metadata too. Attacks
on captured messages go over them by payload, and in there by round.

What a message is follows from who made it, never from the type of its numbers. Control plane (P18)
is a closed list of the message layer's own messages, which no data enters (`NO_DATA`), and what an
algorithm declares as public. All else that the layer hands on has its entry in `_HANDED_ON`, and
what an algorithm releases was computed from clients' data: a vector of it is a model, numbers alone
are metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from audits.attacks._shared.material import Exposure, Material
from audits.attacks._shared.models import NotTested
from audits.attacks._shared.verdicts import Attack, Findings, NotApplicable, Samples
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item, MessagePlan, Plan
from protocols.plan.steps import Part, Service, Step
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.control import CONTROL
from protocols.wire.roles import Role

__all__ = [
    "NOT_ATTACKED",
    "NO_DATA",
    "PAYLOADS",
    "ROUNDS",
    "by_round",
    "item_rows",
    "looked_at",
    "not_tested",
    "over_payloads",
    "payload_of",
    "payloads_of",
    "read_from",
    "sent",
    "single",
    "total",
    "updates",
]

ROUNDS = "by who keeps all rounds"
"""Ends a row on several rounds together; the other row of an attack is on single ones."""

PAYLOADS = {
    "P01": "model update in clear",
    "P02": "model update with local noise",
    "P03": "masked share of a sum",
    "P04": "ciphertext",
    "P05": "aggregate",
    "P06": "aggregate with noise",
    "P07": "gradients of item rows",
    "P08": "tags of item identifiers",
    "P09": "user and neighbour embeddings",
    "P10": "mixed features of several records",
    "P11": "mixed labels of several records",
    "P12": "generator weights and hidden embeddings",
    "P13": "sums of neighbours' features",
    "P14": "weights and functional embeddings for similarity",
    "P15": "similarity of clients' updates",
    "P16": "meta-gradients",
    "P17": "metadata: counts and scores",
    "P18": "control plane: keys, seeds, rosters",
    "P19": "downloads: the model",
    "P20": "errors, logs and reports",
    "P21": "weighted row over a cohort",
}

_WHY = {
    "P09": "only means over cells of users are opened; no attack on them is written yet",
    "P17": "no attack looked at it; the inventory lists every field",
    "P21": "A04 and A05 look at weighted rows, A12 at means of neighbours' models",
}
NOT_ATTACKED = frozenset({"P03", "P04", "P18", "P20"})
"""What no attack applies to: forms of what is attacked once it is opened (a masked share is
uniform, encryption rests on its assumption), what no data enters, and codes of a closed list. They
stand in the inventory; to call them untested would hide what is."""
_ROW = "P21"
_NONE_YET = "no attack is written for it yet"
NO_DATA = frozenset(
    {
        *("KeyCall", "Key", "CosineKey", "WeighKey", "CosineSeed"),
        *("PairCall", "PairBoxes", "PairDown", "PairRows", "Shares", "SelfShares"),
        *("DrawCall", "DrawCommit", "DrawCommits", "DrawLot", "DrawLots"),
        *("Call", "Place", "Farewell", "Survivors", "AllHere", "Vote", "Votes"),
        *("Acknowledgement", "Witnessed", "Canary", "Listed", "BudgetHeads", "BudgetNotes"),
    }
)
"""The layer's messages that hold keys, seeds, who is there, digests and signatures, and no data."""
_HANDED_ON: dict[str, tuple[str, ...]] = {
    "SharedTotal": ("P19", "P05"),  # clients compute the model from it; noised it is P06
    "Cluster": ("P15",),  # cut by how alike clients' updates are
    "NeighbourBoxes": ("P21", "P03"),
    "Boxes": ("P12", "P04"),
    "BlindTotal": ("P12",),
    "CellTotals": ("P09",),
}
"""The layer's messages that hold what follows from clients' data, where no disclosure says more."""
_LAYER = {kind.__name__: tuple(f.name for f in kind.fields) for kind in CONTROL}
_SECRET = {
    **dict.fromkeys(("mask", "mask_neighbours"), "P03"),
    **dict.fromkeys(("he", "ckks", "cosine", "weigh"), "P04"),
}
_OTHERS = {
    Disclosure.NEIGHBOUR_SUM: "P21",
    Disclosure.WEIGHTED_SUM: "P21",
    Disclosure.SIMILARITY: "P15",
    Disclosure.MATCH: "P08",
    Disclosure.ROW_SUM: "P13",
    Disclosure.MIXED: "P10",
    Disclosure.NOISED: "P02",
}
_ALONE = {"P15": "P14", "P21": "P01"}  # what a client's own message is that left in clear
_MATCHING = {
    **dict.fromkeys((Step.TAGS, Step.COMPARE), ("P08", "P04")),
    **dict.fromkeys((Step.SPLIT, Step.MATES, Step.PART), ("P03", "P04")),
}
"""What travels while items are matched; all of it is in boxes."""
_RESULTS: dict[tuple[Part, Step], tuple[str, ...]] = {
    (Disclosure.SIMILARITY, Step.OPEN): ("P15", "P04"),
    (Disclosure.SIMILARITY, Step.OPENED): ("P15",),
    (Disclosure.SIMILARITY, Step.WITNESS): ("P04",),
    (Disclosure.WEIGHTED_SUM, Step.OPEN): ("P04",),
    (Disclosure.WEIGHTED_SUM, Step.OPENED): ("P04",),
    (Disclosure.MIXED, Step.RELAY): ("P04",),
    (Disclosure.MIXED, Step.RELAYED): ("P10",),
    (Disclosure.NOISED, Step.RELAY): ("P04",),
    (Disclosure.NOISED, Step.RELAYED): ("P02",),
    (Disclosure.WEIGHTED_SUM, Step.WITNESS): ("P15", "P04"),  # weights tell who is like whom
}
"""What travels to have a result witnessed and opened, or relayed; all of it is sealed besides."""


def payload_of(item: Item, plan: Plan, policy: PrivacyPolicy) -> str:
    """Return the id of what an item discloses to its receiver; empty for a bare receipt.

    Args:
        item: of the plan.
        plan: tells of what a total is that is opened.
        policy: tells whether training itself was private, and so its updates noised.
    """
    found = payloads_of(item, plan, policy)
    return found[0] if found else ""


def payloads_of(item: Item, plan: Plan, policy: PrivacyPolicy) -> tuple[str, ...]:
    """Return all ids of an item; what it discloses first, then the forms it takes on its way."""
    if item.part is Service.REFUSAL:
        return ("P20",)
    if not any(message.fields for message in item.messages):
        return ()
    if _generator(item):
        return ("P12", *_forms(item))
    if item.disclosure is Disclosure.SUM:
        return _sum(item, policy)
    if item.part is Disclosure.SUM and item.step in (Step.OPEN, Step.OPENED):
        return _opening(item, plan, policy)
    found = _RESULTS.get((item.part, item.step))
    if item.part in (Disclosure.MATCH, Disclosure.ROW_SUM) and item.step is not Step.UP:
        found = _MATCHING.get(item.step, ("P04",))
    if found:
        return found
    return _alone(item) if item.disclosure in _OTHERS else _handed_on(item, policy)


def _alone(item: Item) -> tuple[str, ...]:
    """Return what an item is whose disclosure says so."""
    one = "P07" if _rows(item) else _OTHERS[item.disclosure]
    if item.sender == Role.CLIENT and not _forms(item):
        one = _ALONE.get(one, one)
    if one == "P08" and "match" in _guards(item):
        return ("P08", "P09", "P04")
    labels = ("P11",) if one == "P10" and _two_fields(item) else ()
    return (one, *labels, *_forms(item))


def _opening(item: Item, plan: Plan, policy: PrivacyPolicy) -> tuple[str, ...]:
    """Return what a total is that its key's holder opens: blinded, then as its receiver has it."""
    if item.step is Step.OPEN:
        return ("P04",)
    sums = [up for up in plan.all_of(Disclosure.SUM, Step.UP) if up.exchange == item.exchange]
    found = dict.fromkeys(id for up in sums for id in payloads_of(up, plan, policy))
    return tuple(id for id in found if id not in ("P03", "P04")) or ("P05",)


def _handed_on(item: Item, policy: PrivacyPolicy) -> tuple[str, ...]:
    """Return what an item is that no client's result is in as such: the model first."""
    found = dict.fromkeys(id for one in item.messages for id in _made(one, policy))
    return tuple(sorted(found, key=lambda id: id != "P19")) or ("P18",)


def _made(message: MessagePlan, policy: PrivacyPolicy) -> tuple[str, ...]:
    """Return what a message is by who made it; nothing where no data entered."""
    layer = _LAYER.get(message.name) == tuple(field.name for field in message.fields)
    if layer and message.name in NO_DATA:
        return ()
    if layer and message.name in _HANDED_ON:
        found, chain = _HANDED_ON[message.name], policy.rules.get(Disclosure.SUM, ())
        noised = find(chain, "noise") is not None or policy.training is not None
        return tuple("P06" if noised and id == "P05" else id for id in found)
    if message.disclosure is Disclosure.PUBLIC and not layer:
        return ()
    if message.disclosure is Disclosure.SEALED:
        return _HANDED_ON["Boxes"]
    vector = any(field.shape for field in message.fields)
    return ("P19",) if vector else ("P17",)


def _generator(item: Item) -> bool:
    """Tell whether an item holds generators, or as published gradients of them."""
    dims = (f.dims.split(", ") for m in item.messages for f in m.fields)
    return (item.follows and _vector(item)) or any("fgen" in one for one in dims)


def _two_fields(item: Item) -> bool:
    """Tell whether mixtures come with labels."""
    return any(len(message.fields) > 1 for message in item.messages)


def _sum(item: Item, policy: PrivacyPolicy) -> tuple[str, ...]:
    if _helps(item) or not _vector(item):
        return ("P12" if item.reader else "P17", *_forms(item))
    noised = item.noise is not None or "noise" in _guards(item) or policy.training is not None
    secret = bool(set(_guards(item)) & set(_SECRET))
    found = ("P06" if noised else "P05") if secret else ("P02" if noised else "P01")
    return (found, *_forms(item), *(("P17",) if _counts(item) else ()))


def _helps(item: Item) -> bool:
    """Tell whether one client reads a total that is no change of the model: of its generator."""
    changes = any(field.name == "delta" for message in item.messages for field in message.fields)
    return bool(item.reader) and not changes


def _guards(item: Item) -> list[str]:
    return [guard.partition("(")[0] for guard in item.guards]


def _forms(item: Item) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_SECRET[g] for g in _guards(item) if g in _SECRET))


def _vector(item: Item) -> bool:
    """Tell whether an item holds a vector: weights, or a change of them, however they are spelt."""
    return any(field.shape for message in item.messages for field in message.fields)


def _counts(item: Item) -> bool:
    return any(f.dtype == "u8" for m in item.messages for f in m.fields)


def sent(plan: Plan, policy: PrivacyPolicy) -> tuple[str, ...]:
    """Return the ids of everything that a plan sends, in order."""
    found = {p for item in plan.items if item.times for p in payloads_of(item, plan, policy)}
    return tuple(sorted(found))


def updates(plan: Plan, policy: PrivacyPolicy) -> str:
    """Return the id under which clients' model updates leave; empty if none do."""
    for item in plan.items:
        sums = item.disclosure is Disclosure.SUM and not _helps(item)
        if item.sender == "client" and sums and _vector(item):
            return payload_of(item, plan, policy)
    return ""


def item_rows(plan: Plan, policy: PrivacyPolicy) -> str:
    """Return the id under which gradients of item rows leave; empty if none do."""
    found = (item for item in plan.items if item.times and item.sender == Role.CLIENT)
    return next((payload_of(item, plan, policy) for item in found if _rows(item)), "")


def _rows(item: Item) -> bool:
    """Tell whether an item holds real rows of a catalogue: a block of all, or those sent."""
    kind = {Disclosure.SUM: "block", Disclosure.NOISED: "sent"}.get(item.disclosure)
    fields = (f for m in item.messages for f in m.fields if f.dtype in ("f4", "f8"))
    return any(len(f.shape) == 2 and f.dims.split(", ")[0] == kind for f in fields)


def _exposed(material: Material) -> dict[str, list[Exposure]]:
    """Return payload id -> the exposures whose receiver learnt something, by round and client."""
    case, found = material.case, dict[str, list[Exposure]]()
    noised = updates(case.plan, case.policy) in ("P02", "P06")
    for one in sorted(material.exposures, key=lambda e: (e.round, e.client)):
        if one.seen is not None:
            alone = one.cohort == 1
            payload = ("P02" if noised else "P01") if alone else ("P06" if noised else "P05")
            found.setdefault(one.payload or payload, []).append(one)
    return dict(sorted(found.items()))


def over_payloads(
    material: Material,
    rows: Callable[[str, Sequence[Exposure]], Sequence[Samples | NotApplicable]],
) -> Findings:
    """Return an attack's rows on every payload from which a receiver learnt something.

    Args:
        material: of the run.
        rows: takes a payload and its exposures.
    """
    found = _exposed(material)
    if not found:
        why = "the receiver learnt nothing in the captured rounds"
        return Findings((NotApplicable(why, arises=True),))
    return Findings(tuple(row for payload, those in found.items() for row in rows(payload, those)))


def by_round(
    exposures: Iterable[Exposure], known: Callable[[Exposure], bool]
) -> list[list[Exposure]]:
    """Return the exposures of which the truth is `known`, by round, where two clients are there.

    One alone has nobody whose message could be the null control.
    """
    found: dict[int, list[Exposure]] = {}
    for one in exposures:
        if known(one):
            found.setdefault(one.round, []).append(one)
    return [there for there in found.values() if len({one.client for one in there}) > 1]


def read_from(payload: str, own: str, total: str) -> str:
    """Return what of a payload is read, in words: `own` messages, a `total`, or others' rows."""
    return "another client's weighted row" if payload == _ROW else own if single(payload) else total


def single(payload: str) -> bool:
    """Tell whether the receiver of a payload gets a client's own message, and no total."""
    return payload in ("P01", "P02")


def total(payload: str) -> bool:
    """Tell whether the receiver of a payload gets a total over the cohort."""
    return not single(payload) and payload != _ROW


def looked_at(one: Attack, plan: Plan) -> tuple[str, ...]:
    """Return the ids that an attack looks at: means of neighbours are asked by A12 alone."""
    mean = plan.topology is not None
    return tuple(p for p in one.payloads if p != _ROW or mean is (one.id == "A12"))


def not_tested(
    plan: Plan, policy: PrivacyPolicy, tried: Iterable[str], why: dict[str, str]
) -> tuple[NotTested, ...]:
    """Return what a plan sends, attacks apply to, and none looked at.

    Args:
        plan: of the run.
        policy: of the run.
        tried: ids that an attack looked at.
        why: id -> why an attack on it came to nothing.
    """
    missing = sorted(set(sent(plan, policy)) - set(tried) - NOT_ATTACKED)
    return tuple(
        NotTested(payload=p, why=why.get(p, _WHY.get(p, _NONE_YET))[:400]) for p in missing
    )
