"""A toy of mixed records in the `World` of `wire`, honest and otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocols.disclosures.mixed.guards import Mix
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.names import Disclosure
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Array, MixedMessage, ReleasedMessage, count, real
from protocols.plan.plan import DataPlan
from protocols.plan.planning import make_plan
from protocols.policy.guard import Guard
from protocols.policy.guards import Clip, Seal, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.toys import names_of
from tests.protocols.wire import World

FLOOR, PLACES, WIDTH, CLASSES = 8, 4, 6, 3
MEMBERS = 40
GRID = 16.0 / (2**15 - 1) * (1 + 1e-9)  # of the presets: clip 16, 16 bits
DIMS = {"places": PLACES, "width": WIDTH, "classes": CLASSES}


class Go(ReleasedMessage):
    step: int = count(unit="round", meaning="rounds done so far")


class Mashed(MixedMessage):
    features: Array = real("mixtures", "places", "width", unit="activation", meaning="a mixture")
    label: Array = real("mixtures", "classes", unit="share", meaning="mixed labels", label=True)


class Bare(MixedMessage):
    """Without labels and positions."""

    rows: Array = real("mixtures", "width", unit="activation", meaning="a mixture", wire="f4")


def mash(site: Any, given: Go) -> Mashed:
    site.asked += 1
    if site.answer is not None:
        return site.answer(site, given)
    return Mashed.unmixed(table=site.table, index=site.index, label=site.label)


def _never(*_: Any) -> Any:
    raise NotImplementedError


MASH = Form("mash", _never, (Exchange("mash", (Go,), (Mashed,), mash),))


def chain(*extra: Guard, bound: float = 16.0, **facts: Any) -> tuple[Guard, ...]:
    """Return a protected chain of MIXED; `facts` change `mix`."""
    mix = Mix(**{"floor": FLOOR, "apart": 2, "bucket": 1, **facts})
    return (Clip(norm="l2", bound=bound), mix, *extra, Seal())


BARE = (UnsafeClear(),)


def mixing_policy(rule: tuple[Guard, ...] | None = None, preset: str = "masks") -> PrivacyPolicy:
    document = PrivacyPolicy.preset(preset).document()
    rules = {**document["rules"], "MIXED": [g.model_dump() for g in (rule or chain())]}
    return PrivacyPolicy.model_validate({**document, "name": "mixing", "rules": rules})


def toy(form: Form[Any] = MASH, **dims: int) -> Algorithm[Any]:
    return Algorithm("toy", "none", _never, _never, (form,), {**DIMS, **dims})


def mixing_plan(policy: PrivacyPolicy, form: Form[Any] = MASH, **facts: Any) -> Any:
    """Return a plan; `facts`: clients, rounds, records, and the algorithm's dims."""
    clients, rounds = names_of(facts.pop("clients", 5)), facts.pop("rounds", 3)
    data = DataPlan(
        name="toy",
        task="node",
        features=3,
        classes=2,
        records=facts.pop("records", 64),
        synthetic=True,
    )
    made = toy(form, **facts)
    return make_plan(made, policy, data=data, clients=clients, rounds=rounds, scheme=None)


def mixing(rule: tuple[Guard, ...] | None = None, seed: int = 1, **facts: Any) -> World:
    """Return a started world whose clients hold random records."""
    policy = mixing_policy(rule)
    form = facts.pop("form", MASH)
    world = World(form, policy, plan=mixing_plan(policy, form, **facts))
    rng = np.random.default_rng(seed)
    for site in world.sites.values():
        fill(site, rng)
    return world.start()


def fill(site: Any, rng: np.random.Generator, members: int = MEMBERS) -> None:
    """Give a site random records; every position of a member holds another one."""
    shifts = rng.permutation(np.arange(1, members))[: PLACES - 1]
    first = np.arange(members)
    site.index = np.stack([first, *((first + s) % members for s in shifts)], axis=1)
    site.table = rng.normal(size=(members, WIDTH))
    site.label = rng.integers(CLASSES, size=members)


def asked(world: World, round: int = 1) -> Any:
    """Return the reply to an honest Ask."""
    return world.round(round, given=Go(step=round), back=(world.form.exchanges[0].back[0],))


def groups(world: World, name: str) -> np.ndarray:
    """Return what only the client knows: the group of each member."""
    found = world.clients[name]._gateway._own["MIXED"]._groups
    assert found is not None
    return found


def by_hand(site: Any, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mixtures of a site, counted one by one: features and labels."""
    number = int(group.max()) + 1
    features = np.zeros((number, PLACES, WIDTH))
    labels = np.zeros((number, CLASSES))
    for g in range(number):
        members = np.flatnonzero(group == g)
        for p in range(PLACES):
            features[g, p] = np.mean([site.table[r] for r in {*site.index[members, p]}], axis=0)
        for member in members:
            labels[g, site.label[member]] += 1 / len(members)
    return features, labels


def layout(world: World, kind: Any = Mashed) -> MixLayout:
    return MixLayout(kind, world.policy.rules[Disclosure.MIXED], world.plan.dims)
