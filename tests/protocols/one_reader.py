"""A toy form whose totals one client each reads, in turn, and how to play it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from protocols.forms import Exchange, Form
from protocols.messages import Receiver, SumMessage, Vector, real
from protocols.rounds import Ask, Cohort, Reply, Sealed
from tests.protocols.toys import Start, Toy, deliver, first
from tests.protocols.wire import World


class Told(SumMessage):
    receiver: ClassVar[Receiver] = "client"
    move: Vector = real("d", unit="weight", meaning="a toy answer")


def tell(site: Toy, given: Start) -> Told:
    site.asked += 1
    return Told(move=site.answer(site, given) if site.answer else site.delta)


def _never(*_: Any) -> Any:
    raise NotImplementedError


READ = Form(
    "read",
    _never,
    (
        Exchange("tell", (Start,), (Told,), tell),
        Exchange("deliver", (Told,), (), deliver, per_round=2),
    ),
)


def hand_out(world: World, token: Sealed, round: int = 1) -> None:
    """Hand totals on, all of them in one Ask."""
    world.pump(world.aggregator.ask(Ask(Cohort(world.names), token), round))


def told(world: World, round: int = 1) -> Reply:
    """Play one Ask whose total one client reads."""
    return world.round(round, given=first(Start, world.d), back=Told)


def others(world: World, reader: str) -> Any:
    """Return what a reader is to read: the sum of all others, computed in one place."""
    return sum(site.delta for name, site in world.sites.items() if name != reader)


def got(world: World, name: str) -> Any:
    """Return the last total that a client's algorithm was given."""
    return np.asarray(world.sites[name].got[-1].move)
