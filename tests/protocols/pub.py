"""A toy of directions and weighted models in the `World` of `wire`, honest and otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from protocols.disclosures._evaluated.ciphers import weigh_ring
from protocols.forms import Exchange, Form
from protocols.messages import (
    ReleasedMessage,
    SimilarityMessage,
    SumMessage,
    Vector,
    WeightedSumMessage,
    count,
    real,
)
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Reply
from protocols.wire.envelope import Envelope
from tests.protocols.toys import changed_policy
from tests.protocols.wire import World

GRID = 4.0 / (2**14 - 1)  # of the presets: clip 4, 15 bits
STEP = 2.0**-14  # of opened cosines


class Go(ReleasedMessage):
    step: int = count(unit="round", meaning="rounds done so far")


class Model(WeightedSumMessage):
    weights: Vector = real("d", unit="weight", meaning="the model")
    bias: float = real(unit="weight", meaning="one more parameter")


class Portrait(SimilarityMessage):
    outputs: Vector = real("d", unit="logit", meaning="what the model says about a probe")


class Size(SumMessage):
    records: int = count(unit="record", meaning="records")


def portray(site: Any, given: Go) -> tuple[Model, Portrait]:
    site.asked += 1
    return Model(weights=site.model, bias=site.index / 4), Portrait(outputs=site.direction)


def all_at_once(site: Any, given: Go) -> tuple[Model, Portrait, Size]:
    return *portray(site, given), Size(records=site.count)


def receive(site: Any, given: Model) -> None:
    site.got.append(given)


def _never(*_: Any) -> Any:
    raise NotImplementedError


RECEIVE = Exchange("receive", (Model,), (), receive)
PUB = Form("pub", _never, (Exchange("train", (Go,), (Model, Portrait), portray), RECEIVE))
COUNTED = Form(
    "counted", _never, (Exchange("train", (Go,), (Model, Portrait, Size), all_at_once), RECEIVE)
)
TWICE = Form(
    "twice",
    _never,
    (
        Exchange("train", (Go,), (Model, Portrait), portray),
        Exchange("receive", (Model,), (), receive, per_round=2),
    ),
)


def changed(preset: str = "pilot", **facts: Any) -> PrivacyPolicy:
    """Return a preset with other facts of its `cosine` and `weigh` guards, or of its own."""
    document = PrivacyPolicy.preset(preset).document()
    for chain in document["rules"].values():
        for guard in chain:
            if guard["guard"] in ("cosine", "weigh"):
                names = set(guard) & set(facts)
                guard.update({name: facts[name] for name in names})
    own = {k: v for k, v in facts.items() if k in document}
    return PrivacyPolicy.model_validate({**document, "name": "changed", **own})


def unwatched() -> PrivacyPolicy:
    """Return a preset without witnesses: the control of O4."""
    return changed(witnesses=0)


def pub(policy: PrivacyPolicy | str = "pilot", *, form: Any = PUB, seed: int = 4, **facts: Any):
    """Return a world whose clients hold random models and directions, keys agreed on."""
    chosen = changed_policy(policy, rekey_rounds=4) if isinstance(policy, str) else policy
    world = World(form, chosen, **{"clients": 6, **facts})
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(world.d)
    for site in world.sites.values():
        site.direction = rng.uniform(0.2, 1) * base + rng.standard_normal(world.d)
        site.model = rng.normal(size=world.d)
    return world.start()


def trained(world: World, round: int = 1, members: Any = None) -> Reply:
    """Return the reply to an honest first Ask."""
    back = world.form.exchanges[0].back
    return world.round(round, given=Go(step=round), back=back, members=members)


def hand_out(world: World, sealed: Any, round: int = 1, members: Any = None) -> None:
    """Play the second Ask, honestly."""
    cohort = Cohort(members or world.names)
    world.pump(world.aggregator.ask(Ask(cohort, sealed), round))


def cosines(world: World, names: Any = None) -> np.ndarray:
    """Return what the matrix should be."""
    rows = np.stack([world.sites[n].direction for n in (names or world.names)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def received(world: World) -> np.ndarray:
    """Return what every client was handed last: weights and bias, one row each."""
    last = [world.sites[n].got[-1] for n in world.names]
    return np.array([[*m.weights, m.bias] for m in last])


def models(world: World) -> np.ndarray:
    """Return what every client gave: weights and bias, one row each."""
    sites = [world.sites[n] for n in world.names]
    return np.array([[*s.model, s.index / 4] for s in sites])


def even(count: int) -> np.ndarray:
    """Return weights that everybody may have: all alike."""
    return np.full((count, count), 1 / count)


def sent(world: World, item: str) -> list[Envelope]:
    """Return the envelopes of an item, in order."""
    found = (Envelope.decode(data) for data in world.wire)
    return [envelope for envelope in found if envelope.header.item == item]


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put something dishonest in the place of an attribute for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def packing(world: World) -> Any:
    """Return how models stand in coefficients, and how many integers one has."""
    from protocols.disclosures._evaluated.ciphers import shape_of

    shape = shape_of((Model,), world.policy, world.plan.dims)
    return shape.packing, shape.layout.length


def integers(world: World, plain: np.ndarray) -> np.ndarray:
    """Return the integers of a plaintext that is one client's upload."""
    chosen, length = packing(world)
    return chosen.unpack(plain[: chosen.coefficients(length)], length)


RING = weigh_ring()
