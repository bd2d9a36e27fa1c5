"""What a plan says of the noise of one item."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field as Setting
from pydantic import model_validator

from crypto.quantiser import Grid
from crypto.signing import canonical
from protocols.disclosures.names import Disclosure
from protocols.errors import NotInPlan
from protocols.messages import Field, Message
from protocols.plan.cohorts import DrawnPlan, SplitPlan, TopologyPlan
from protocols.plan.steps import Part, Service, Step, Way, item_id, not_planned
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.training import TrainingPlan
from protocols.shown import Shown
from protocols.strict import Strict
from protocols.versions import PLAN
from protocols.wire.roles import Role, names
from protocols.wire.roster import AGGREGATOR_NAME


class NoisePlan(Strict):
    """The noise of one item; numbers that are not whole are decimal texts.

    Attributes:
        mechanism: ``discrete_gaussian`` or ``discrete_laplace``, or a local randomiser's name.
        sigma: standard deviation (scale, for Laplace) of one client's noise, in grid steps; empty
            where a randomiser adds none.
        l2, l1: largest norms of one vector in grid steps; empty likewise.
        coordinates: entries that are noised.
        honest: noise shares that are counted on (O18).
        margin: head-room, in grid steps of a total, on either side (O19).
        releases: of one client, in the whole run.
        epsilon, delta: the target for the run.
        adjacency: ``zero-out``: the vector is compared with none, and all honest shares hide it;
            ``replace-one``: with any other vector, which may be twice its norm away, and only the
            client's own share hides it.
        pure: epsilon of one message, at delta 0, of mechanisms that have one; else empty.
        batch: messages of honest clients in every batch that a relay puts in order, at least; 0
            without a relay.
        shuffled: epsilon of the run at `delta` against who reads such batches, while the relay
            works for nobody else; empty where the order is worth nothing that is known.
    """

    mechanism: str
    sigma: str
    l2: str
    l1: str
    coordinates: int
    honest: int
    margin: int
    releases: int
    epsilon: str
    delta: str
    adjacency: Literal["zero-out", "replace-one"] = "zero-out"
    pure: str = ""
    batch: int = 0
    shuffled: str = ""

    @property
    def local(self) -> bool:
        """Whether one client's own noise is all that is counted on."""
        return self.adjacency == "replace-one"

    @property
    def apart(self) -> float:
        """By how many of its norms two neighbouring vectors differ at most."""
        return 2.0 if self.local else 1.0


class CountPlan(Strict):
    """The noise of one item that hides single records; numbers not whole are decimal texts.

    Attributes:
        unit: the records: ``graph``: counts of scored graphs (`record_noise`); ``node``: rows of
            nodes' features (`row_noise`).
        mechanism: ``discrete_gaussian`` or ``discrete_laplace``.
        scale: of the noise on a field, in units of what one record moves it by; on a row, in units
            of the clip.
        fields: of one message, noised ones: one record moves each by its unit at most. Of rows,
            those that one node enters at most.
        entries: numbers that are noised.
        margin: head-room of a total on either side (O19); 0 where words have room.
        releases: of one client, in the whole run.
        epsilon, delta: for one record and the run.
    """

    unit: Literal["graph", "node"] = "graph"
    mechanism: Literal["discrete_gaussian", "discrete_laplace"]
    scale: str
    fields: int
    entries: int
    margin: int
    releases: int
    epsilon: str
    delta: str


# --- The plan: everything that would leave each party, made without touching the data ---
#
# A plan is plain data (its JSON Schema: ``secure-fgl schema plan``). Its digest stands in every
# signed header, and the gateway refuses what is not in it: another message, recipient, size or
# count.


class FieldPlan(Strict):
    """One field: what it says and how big it is.

    Attributes:
        name, unit, meaning: in the words of the algorithm's file.
        dtype, shape, dims: of the array, and what its dimensions are called.
        carried: the disclosure of a field beside the key of a MATCH message; else empty.
        bound, step: largest entry, and distance of two, as decimal texts; empty off the grid.
        told: how a client's own noise tells it, outside a vector.
        moves: by how much one record changes it at most; 0: that is not known.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: str
    unit: str
    meaning: str
    carried: str = ""
    bound: str = ""
    step: str = ""
    told: str = ""
    moves: int = Setting(default=0, ge=0)


class MessagePlan(Strict):
    """One message type inside an item."""

    name: str = Setting(description="of the message's class")
    disclosure: Disclosure
    fields: tuple[FieldPlan, ...]


class Item(Strict):
    """One kind of envelope on one route.

    Attributes:
        id: for people, for example ``train.up.SUM``; see `steps.item_id`.
        exchange: name of the Ask that it belongs to; empty for what belongs to none.
        part, step: what it is for; sessions look up by them what to do.
        way: which of several ways; None for what has one way only. Items of one Ask and part with
            different ways leave in place of each other: `times` counts both together, and `at_most`
            adds up the larger.
        label: stands in every derivation (rounding, mixing, masks) in the place of a name: whatever
            is renamed, a label stays, and with it every repeatable result.
        sender, recipient: roles; recipient ``roster`` is everyone.
        bytes: size on the wire of the largest envelope of this kind, header and signature included.
        body: exact size of its body before sealing.
        times: how often, at most, between one sender and one recipient in the whole run.
        per_round: how often in each round.
        guards: the protection, in order.
        noise: what is added before it is protected; None without a noise guard.
        counted: what is added to its counts of single records; None without that guard.
        model: of what hands a model out, how a client sees to it; see `protocols.plan.learns`.
        checked: of a sum, how many of its first integers have a check that clients alone can make
            and verify; they compute the model from these.
        reader: of a sum, ``client`` if one client of its cohort reads the total, all in turn.
        follows: it follows from what was handed to its client; see `Exchange`.
        learns: per role, in words.
    """

    id: str
    exchange: str
    part: Part
    step: Step
    way: Way | None = None
    label: str
    sender: str
    recipient: str
    disclosure: Disclosure
    messages: tuple[MessagePlan, ...]
    guards: tuple[str, ...]
    unsafe: bool = Setting(False, description="it leaves in clear")
    bytes: int = Setting(ge=0)
    body: int = Setting(ge=0)
    per_round: int = Setting(ge=0)
    times: int = Setting(ge=0)
    dims: dict[str, int] = Setting(default_factory=dict, description="length of each by name")
    noise: NoisePlan | None = None
    counted: CountPlan | None = None
    model: str = ""
    checked: int = Setting(default=0, ge=0)
    reader: Literal["", "client"] = ""
    follows: bool = False
    learns: dict[str, str] = Setting(default_factory=dict)

    @property
    def margin(self) -> int:
        """Head-room of a total on either side, in its integers, for noise (O19)."""
        return max(added.margin if added else 0 for added in (self.noise, self.counted))

    @property
    def schema_digest(self) -> str:
        """SHA-256 (hex) over the item's messages and fields."""
        content = [message.model_dump(mode="json") for message in self.messages]
        return hashlib.sha256(b"secure-fgl/schema\0" + canonical(content)).hexdigest()


def at_most(items: Iterable[Item], amount: Callable[[Item], int]) -> int:
    """Return the most that items of one plan amount to; of several ways, the largest counts."""
    ways: dict[tuple[str, Part, bool], Counter[Way | None]] = {}
    for item in items:
        place = (item.exchange, item.part, item.way is None)
        ways.setdefault(place, Counter())[item.way] += amount(item)
    return sum(max(found.values()) for found in ways.values())


def times_in_round(item: Item, round: int, rounds: int) -> int:
    """Return how often an item may leave in one round (round 0: outside the rounds).

    Args:
        item: the plan item.
        round: 0, or 1 to `rounds`.
        rounds: of the plan.
    """
    outside = max(0, item.times - item.per_round * rounds)  # of matching a run has fewer (O24)
    return item.per_round if round and item.per_round else outside


class DataPlan(Strict):
    """What a plan may know of the data: public facts and padded upper bounds, never a count.

    Attributes:
        features, classes, records: how many; of records, for training at a client, at most.
        multilabel: whether each of `classes` is a yes-or-no question of its own.
        users, items: how many a rating task knows at most; else 0.
        scale: lowest and highest rating, in decimal; else empty.
        columns: digest of what columns are called and classes mean, in order; empty where they
            have no names.
        spec: digest of all that the sites agreed on about tables of their own; else empty.
        edges: what of edges is learnt from; empty for ratings.
    """

    name: str = Setting(description="of the data set")
    task: str = Setting(description="`node`, `graph` or `rating`")
    features: int
    classes: int
    records: int
    synthetic: bool = Setting(description="the data are generated")
    multilabel: bool = False
    users: int = 0
    items: int = 0
    scale: tuple[str, ...] = ()
    columns: str = ""
    spec: str = ""
    edges: str = Setting("", description="what of edges is learnt from; nothing else is read")


class Plan(Shown):
    """Everything that would leave, for one algorithm, data shape and policy.

    Attributes:
        code: digest of every disclosure's folder, by name, and of every plug-in's file, by
            `plugin_entry`; parties with other code refuse the plan.
        drawn: of cohorts that are drawn by lot; None: a round asks all clients.
        minimum_records: a site with records of fewer persons to train on trains on nothing; 0: a
            client is itself a person, or `training` hides single records.
        seed: public; the model before the first round is drawn from it, by every party itself.
        splits: how its clients fall into clusters; None: they never do.
        topology: whose sums clients read, where they read sums over their neighbours; else None.
    """

    facts: ClassVar = ("algorithm", "data.name", "policy", "clients", "rounds", "warnings")
    listed: ClassVar = ("items", "id", "sender", "recipient", "disclosure", "guards", "times")

    version: int = Setting(PLAN.version, description="number of the format")
    algorithm: str = Setting(description="name, as in the catalogue")
    form: str = Setting(description="which variant of it")
    rounds: int = Setting(description="at most")
    clients: tuple[str, ...] = Setting(description="their names, sorted")
    data: DataPlan
    policy: str = Setting(description="its name")
    policy_digest: str = Setting(description="SHA-256 of the policy, hex")
    policy_fields: dict[str, str] = Setting(
        default_factory=dict, description="each setting of the policy, as JSON, defaults too"
    )
    smallest_cohort: int = Setting(description="no total is of fewer clients")
    withstands: int | None = Setting(
        None,
        ge=0,
        description="so many clients may help the aggregator, and no upload of another one opens; "
        "none: its sums carry no masks",
    )
    minimum_records: int = Setting(0, description="of fewer persons a site trains on nothing")
    scheme: str = Setting(description="encryption of sums, or `none`")
    budget: str = Setting(description="what may be spent, in a sentence")
    warnings: tuple[str, ...] = Setting(description="what a person should read before approving")
    dims: dict[str, int] = Setting(description="length of each named dimension")
    items: tuple[Item, ...]
    code: dict[str, str]
    seed: int = Setting(default=0, ge=0)
    training: TrainingPlan | None = None
    splits: SplitPlan | None = None
    drawn: DrawnPlan | None = None
    topology: TopologyPlan | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, values: Any) -> Any:
        """Raise OtherVersion before anything else is looked at, whoever reads the plan."""
        if isinstance(values, dict) and not PLAN.check(values.get("version", PLAN.version)):
            raise ValueError("version: no number of a format")
        return values

    @model_validator(mode="after")
    def _names_are_in_order(self) -> Plan:
        ids, labels = [i.id for i in self.items], [i.label for i in self.items]
        for name, found in (("items", ids), ("labels", labels), ("clients", self.clients)):
            if len(set(found)) != len(found):
                raise ValueError(f"{name}: a name stands twice")
        for item in self.items:
            if item.id != item_id(item.exchange, item.part, item.step, item.sender):
                raise ValueError(f"items: {item.id!r} is not the id of its part and step")
            if item.part is Service.REFUSAL and (item.exchange or item.step is not Step.REFUSE):
                raise ValueError(f"items: {item.id!r} is no refusal")  # ids say neither
            if len({(i.times, i.per_round) for i in (item, *self.instead_of(item))}) > 1:
                raise ValueError(f"items: ways of {item.exchange!r} may leave unequally often")
        if list(self.clients) != sorted(self.clients):
            raise ValueError("clients: not in sorted order")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the canonical plan; stands in every signed header."""
        return hashlib.sha256(b"secure-fgl/plan\0" + canonical(self.document())).hexdigest()

    def document(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return self.model_dump(mode="json")

    def text(self) -> str:
        """Return the plan as the JSON that is saved, approved and compared."""
        return json.dumps(self.document(), indent=2, sort_keys=True) + "\n"

    def item(self, id: str) -> Item:
        """Return an item by id; raises NotInPlan."""
        for item in self.items:
            if item.id == id:
                return item
        raise not_planned(id)

    def find(self, exchange: str, part: Part, step: Step) -> Item:
        """Return the item of one step of an Ask; raises NotInPlan."""
        for item in self.all_of(part, step):
            if item.exchange == exchange:
                return item
        raise not_planned(item_id(exchange, part, step, ""))

    def all_of(self, part: Part | None = None, step: Step | None = None) -> list[Item]:
        """Return the items of a part, of a step, or of both, in the plan's order."""
        found = [item for item in self.items if part is None or item.part is part]
        return [item for item in found if step is None or item.step is step]

    def instead_of(self, item: Item) -> list[Item]:
        """Return the items of another way, which leave in this one's place."""
        if item.way is None:
            return []
        beside = (i for i in self.all_of(item.part) if i.exchange == item.exchange)
        return [i for i in beside if i.way is not None and i.way is not item.way]

    @property
    def withstands_words(self) -> str:
        """How many clients may help the aggregator, in words; empty for a plan without sums."""
        if self.withstands is not None:
            return (
                f"up to {self.withstands} of {len(self.clients)} clients may help the aggregator, "
                "and it opens no upload of another one; what they sent themselves they take off "
                "each total"
            )
        if not self.all_of(Disclosure.SUM, Step.UP):
            return ""
        return "no dishonest aggregator, even alone: sums carry no masks"

    @property
    def noised(self) -> bool:
        """Whether noise bounds what messages tell: the policy promises somebody an epsilon."""
        noised = any(item.noise is not None or item.counted is not None for item in self.items)
        return noised or self.training is not None

    @property
    def plugins(self) -> dict[str, str]:
        """The part of `code` that is of plug-ins."""
        return {entry: digest for entry, digest in self.code.items() if _PLUGIN.match(entry)}

    @property
    def floor_words(self) -> str:
        """Of how many persons a site needs training records, in words, or why of none."""
        if self.minimum_records:
            return (
                f"a site with training records of fewer than {self.minimum_records} trains on "
                "nothing; validation and test records of fewer count as none"
            )
        if self.training is not None or any(item.counted for item in self.items):
            return "no floor, as noise hides each record: its epsilon holds for any number"
        return "no floor, as each client is one person"

    def bytes_up(self) -> int:
        """Upper bound of what one client sends in the whole run, in bytes, all items counted."""
        up = (i for i in self.items if i.sender == "client")
        return at_most(up, lambda i: i.bytes * i.times)


_PLUGIN = re.compile(r"plugin\.([a-z]+)\.([a-z0-9_]+)\Z")  # no folder's name has a dot


def plugin_entry(kind: str, name: str) -> str:
    """Return under which name a plug-in's digest stands in a plan's `code`."""
    return f"plugin.{kind}.{name}"


def plugin_of(entry: str) -> tuple[str, str] | None:
    """Return kind and name of a plug-in whose digest stands in `code`; None for other entries."""
    found = _PLUGIN.match(entry)
    return (found[1], found[2]) if found else None


# --- Who takes part in a run: every party's name and role, as they follow from plan and policy ---


def roles_of(plan: Plan, policy: PrivacyPolicy) -> dict[str, Role]:
    """Return the role of every party of a run, by name."""
    found = {AGGREGATOR_NAME: Role.AGGREGATOR, **dict.fromkeys(plan.clients, Role.CLIENT)}
    for role in Role:
        if role not in (Role.AGGREGATOR, Role.CLIENT):
            found |= dict.fromkeys(names(role, plan.items, policy), role)
    return found


# --- What a message says, as plans print it; and the check that a class still says just that ---


class Column(Protocol):
    """One field of a message on a grid."""

    @property
    def message(self) -> str:
        """Name of the message."""

    @property
    def field(self) -> Field:
        """The field."""

    @property
    def grid(self) -> Grid | None:
        """Its grid; None for exact counts."""


class Layout(Protocol):
    """Where fields stand on a grid, whose bounds and steps a plan prints."""

    @property
    def columns(self) -> Sequence[Column]:
        """The fields, in order."""


def message_plan(
    kind: type[Message], dims: Mapping[str, int], layout: Layout | None = None
) -> MessagePlan:
    """Return a message type with the sizes that `dims` gives it.

    Args:
        kind: the message type.
        dims: sizes of named dimensions.
        layout: for messages on a grid, the layout whose bounds and steps are printed.
    """
    grids = {}
    if layout is not None:
        grids = {c.field.name: c.grid for c in layout.columns if c.message == kind.__name__}
    fields = []
    for field in kind.fields:
        grid = grids.get(field.name)
        fields.append(
            FieldPlan(
                name=field.name,
                dtype=field.wire,
                shape=field.sizes(dims),
                dims=", ".join(str(part) for part in field.shape),
                unit=field.unit,
                meaning=field.meaning,
                carried=str(field.carried or ""),
                bound=repr(grid.bound) if grid else "",
                step=repr(grid.step) if grid else "",
                told=field.told,
                moves=field.moves,
            )
        )
    return MessagePlan(name=kind.__name__, disclosure=kind.disclosure, fields=tuple(fields))


def check_schema(
    kind: type[Message],
    planned: MessagePlan,
    dims: Mapping[str, int],
    layout: Layout | None = None,
) -> None:
    """Raise NotInPlan unless `kind` has exactly the planned fields, bounds and steps included."""
    if message_plan(kind, dims, layout) != planned:
        raise NotInPlan(
            f"The message {kind.__name__} is not the one in the plan: its fields differ.",
            why="the algorithm's file changed after the plan was made",
            fix="make a new plan, and have it approved",
        )


# --- What one plan would do beyond another, which somebody approved ---

_SAME = (
    "version",
    "algorithm",
    "form",
    "data",
    "policy",
    "policy_digest",
    "policy_fields",
    "scheme",
    "budget",
    "dims",
    "seed",
    "training",
    "splits",
    "drawn",
    "topology",
)


_ITEM_SAME = (
    "exchange",
    "part",
    "step",
    "way",
    "label",
    "sender",
    "recipient",
    "disclosure",
    "messages",
    "guards",
    "unsafe",
    "dims",
    "noise",
    "counted",
    "model",
    "checked",
    "reader",
    "follows",
    "learns",
)


def code_drift(approved: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """List whose code is not the approved one: disclosures' folders, and plug-ins."""
    found = []
    for entry in sorted({*approved, *wanted}):
        if approved.get(entry) == wanted.get(entry):
            continue
        kind, name = plugin_of(entry) or ("code", f"protocols/disclosures/{entry}")
        what = f"plug-in {name} ({kind})" if plugin_of(entry) else f"code: {name}"
        if entry not in approved:
            found.append(f"{what}: not in the approved plan")
        elif entry not in wanted:
            found.append(f"{what}: in the approved plan, and not here")
        else:
            found.append(f"{what}: another one is here than was approved")
    return found


def drift(approved: Plan, wanted: Plan) -> list[str]:
    """List what `wanted` would do beyond `approved`; empty if nothing is new.

    Fewer rounds, fewer items and a larger minimum cohort are no drift; everything else is.
    """
    found = [
        _change(name, getattr(approved, name), getattr(wanted, name))
        for name in _SAME
        if getattr(approved, name) != getattr(wanted, name)
    ]
    found += code_drift(approved.code, wanted.code)
    if wanted.minimum_records < approved.minimum_records:
        found.append("minimum_records: sites with records of fewer persons would train")
    if wanted.smallest_cohort < approved.smallest_cohort:
        found.append("smallest_cohort: smaller groups would be opened")
    if _fewer(approved.withstands, wanted.withstands):
        found.append("withstands: fewer clients that help the aggregator open single uploads")
    if strangers := sorted(set(wanted.clients) - set(approved.clients)):
        found.append(f"clients: {len(strangers)} new")
    if wanted.rounds > approved.rounds:
        found.append(f"rounds: {approved.rounds} became {wanted.rounds}")
    found += [f"warning: {text}" for text in wanted.warnings if text not in approved.warnings]
    old = {item.id: item for item in approved.items}
    for item in wanted.items:
        if item.id not in old:
            found.append(f"{item.id}: new ({item.sender} -> {item.recipient}, {item.disclosure})")
        else:
            found += _item_drift(old[item.id], item)
    return found


def _fewer(old: int | None, new: int | None) -> bool:
    """Tell whether a plan withstands fewer than another one; without masks nothing is claimed."""
    return old is not None and (new is None or new < old)


_LONGEST = 40
"""Characters of a value that is shown; digests and sentences are longer."""


def _change(name: str, old: Any, new: Any) -> str:
    """Say what changed, with both values where they are short."""
    if isinstance(old, Strict) and isinstance(new, Strict):
        old, new = old.model_dump(), new.model_dump()
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        return f"{name}: {', '.join(keys)} changed"
    if all(isinstance(value, str | int) and len(str(value)) <= _LONGEST for value in (old, new)):
        return f"{name}: {old!r} became {new!r}"
    return f"{name} changed"


def _item_drift(old: Item, new: Item) -> list[str]:
    found = []
    for name in _ITEM_SAME:
        if getattr(old, name) != getattr(new, name):
            found.append(f"{new.id}: {name} changed")
    for name in ("bytes", "body", "per_round", "times"):
        if getattr(new, name) > getattr(old, name):
            found.append(f"{new.id}: {name} grew from {getattr(old, name)} to {getattr(new, name)}")
    return found
