"""A world whose parties are killed at will, each taken up again from what it kept."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from crypto.samplers import entropy
from protocols.evidence.ledger import Ledger
from protocols.sessions.store.journal import Standing
from protocols.sessions.store.state_keeper import StateKeeper
from tests.protocols.wire import World


class Drawer:
    """A store in memory, and what lies outside it."""

    def __init__(self) -> None:
        self.key, self.pieces, self.outside = entropy(32), {}, Standing()

    def put(self, name: str, data: bytes) -> None:
        self.pieces[name] = data

    def get(self, name: str) -> bytes | None:
        found = self.pieces.get(name)
        return None if found is None else bytes(found)

    def drop(self, name: str) -> None:
        self.pieces.pop(name, None)

    def names(self):
        return list(self.pieces)

    def patch(self, name: str, writes) -> None:
        held = bytearray(self.pieces.get(name, b""))
        for at, data in writes:
            held.extend(bytes(max(0, at + len(data) - len(held))))
            held[at : at + len(data)] = data
        self.pieces[name] = held

    def standing(self) -> Standing:
        return self.outside

    def turn(self, standing: Standing, *, flush: bool) -> None:
        self.outside = standing

    def advance(self, number: int, *, flush: bool) -> None:
        self.outside = replace(self.outside, number=number)


class Killed(World):
    """Everybody is killed after every delivery, and goes on from what was kept."""

    kills = 0

    def keep(self) -> None:
        self.state_stores = {name: Drawer() for name in self.stores}
        for name in self.stores:
            session = self.session(name)
            session.keeper = self.keeper(name, session.context)
            session.commit()

    def keeper(self, name: str, context) -> StateKeeper:
        site = self.sites.get(name)
        if site is not None:
            site.memory, site.draws = {}, {}
        learning = name in self.sites or name == "aggregator"
        return StateKeeper(self.state_stores[name], context, self.form if learning else None, site)

    def deliver(self, delivery):
        answers = super().deliver(delivery)
        if hasattr(self, "state_stores") and self.session(delivery.to).state != "CLOSED":
            self.kill(delivery.to)
        return answers

    def kill(self, name: str) -> None:
        before = self.session(name)
        context = copy(before.context)
        context.he_key = context.pairs = context.tag_key = None
        context.held = {}
        context.keys = {}
        store, run = self.stores[name], self.run

        def reopen(facts):
            clock = lambda: "2026-01-01"  # noqa: E731
            return Ledger.take_up(name, run, store, clock, found=store.lines, facts=facts)

        taken = self.keeper(name, context).restore(type(before), reopen)
        self.kills += 1
        if name in self.clients:
            self.clients[name] = taken
        elif name in self.witnesses:
            self.witnesses[name] = taken
        elif name == "aggregator":
            self.aggregator = taken
        elif name in self.serving:
            self.serving[name] = taken
        elif name == "relay":
            self.relay = taken
        else:
            self.authority = taken
