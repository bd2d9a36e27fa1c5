"""The soak's faults: which process is killed, or hangs, when, and what came of it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks._soak_federation import SERVER, Stage, kill_group, signalled, until
from protocols.wire.roles import Role

KINDS: dict[str, tuple[Role | None, str]] = {
    "client's session": (Role.CLIENT, "session"),
    "client's carrier": (Role.CLIENT, "carrier"),
    "client's supervisor": (Role.CLIENT, "supervisor"),
    "client's whole site": (Role.CLIENT, "site"),
    "client's session hangs": (Role.CLIENT, "hang"),
    "client's carrier hangs": (Role.CLIENT, "carrier hangs"),
    "authority's session": (Role.KEY_AUTHORITY, "session"),
    "authority's carrier": (Role.KEY_AUTHORITY, "carrier"),
    "authority's whole site": (Role.KEY_AUTHORITY, "site"),
    "aggregator's session": (Role.AGGREGATOR, "session"),
    "aggregator's carrier": (Role.AGGREGATOR, "carrier"),
    "aggregator's whole site": (Role.AGGREGATOR, "site"),
    "server": (None, "server"),
}
"""Every kind of process, and whose it is, but a client's process of answers, see `SINGLE`."""

SINGLE: dict[str, tuple[Role | None, str]] = {
    "client's process of answers": (Role.CLIENT, "answers"),
    "client's whole site, for good": (Role.CLIENT, "gone"),
}
"""Faults that are played where they are named, and not by chance. The first ends the run: an answer
that dies is a refusal for good, else it would tell a bit of the data (ADR 0059). The last one only
comes last."""

BACK_SECONDS = 240.0
_STILL = 12.0  # seconds for which a hang lasts; the watchdog's two minutes have tests of their own


@dataclass
class Fault:
    """One fault and its end.

    Attributes:
        kind: of `KINDS`.
        site: where.
        round: in which the run was.
        back_s: seconds until what was killed was at work again; None: not before the run was over.
        on_s: seconds until a whole round was played after it; None: never.
    """

    kind: str
    site: str
    round: int
    back_s: float | None = None
    on_s: float | None = None


@dataclass
class Faults:
    """Plays faults by a seed, one after the other, each once the last one is over.

    Args:
        stage: of the federation.
        seed: decides what is killed, where, and how far into a round.
    """

    stage: Stage
    seed: int
    played: list[Fault] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Seed the chance."""
        self._chance = random.Random(self.seed)  # noqa: S311 - a test's

    def kinds(self) -> Iterator[str]:
        """Yield kinds without end, each as often as the others, in an order that the seed says."""
        while True:
            yield from self._chance.sample(sorted(KINDS), len(KINDS))

    def play(self, kind: str) -> Fault | None:
        """Play one fault at a moment that the seed decides; None where there is no such process."""
        role, what = (KINDS | SINGLE)[kind]
        site = self._chance.choice(self.stage.parties(role)) if role is not None else SERVER
        time.sleep(self._chance.random())
        if self.stage.finished():
            return None
        fault = Fault(kind, site, self.stage.round())
        if not self._hurt(site, what):
            return None
        self.played.append(fault)
        began = time.monotonic()
        self._await(fault, began)
        return fault

    def _hurt(self, site: str, what: str) -> bool:
        if what == "server":
            self.stage.server.kill()
            return True
        leader = self.stage.processes.running[site].pid
        if what in ("site", "gone"):
            kill_group(leader)
            self.gone |= {site} if what == "gone" else set()
            return True
        if what == "supervisor":
            signalled(leader, signal.SIGKILL)
            return True
        hangs = {"hang": "session", "carrier hangs": "carrier"}
        number = self.stage.number(site, hangs.get(what, what))
        if number is None:
            return False
        signalled(number, signal.SIGSTOP if what in hangs else signal.SIGKILL)
        if what in hangs:
            time.sleep(_STILL)
            signalled(number, signal.SIGCONT)
        return True

    def _await(self, fault: Fault, began: float) -> None:
        """Wait until it is over: what was killed is back, and a whole round was played."""
        stage = self.stage
        time.sleep(1.0)  # systemd would not be quicker

        def over() -> bool:
            self.tend()
            now = time.monotonic() - began
            if fault.back_s is None and stage.up(fault.site):
                fault.back_s = now
            if fault.on_s is None and (stage.round() > fault.round + 1 or stage.finished()):
                fault.on_s = now
            back = fault.back_s is not None or fault.site in self.gone
            done = back and fault.on_s is not None
            return done or stage.finished() or stage.refused()

        until(over, BACK_SECONDS)

    def tend(self) -> None:
        """Start what is dead, as operators and systemd would."""
        self.stage.restart({*self.gone})


def table(played: list[Fault]) -> list[dict[str, Any]]:
    """Return by kind how often it was played, and the longest that it took."""
    found = []
    for kind in KINDS | SINGLE:
        mine = [fault for fault in played if fault.kind == kind]
        backs = [fault.back_s for fault in mine if fault.back_s is not None]
        ons = [fault.on_s for fault in mine if fault.on_s is not None]
        if mine:
            found.append(
                {
                    "kind": kind,
                    "times": len(mine),
                    "back_s": max(backs, default=None),
                    "next_round_s": max(ons, default=None),
                    "never": sum(fault.on_s is None for fault in mine),
                }
            )
    return found
