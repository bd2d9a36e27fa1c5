"""The soak's faults: which process is killed, or hangs, when, and what came of it."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks._soak_federation import Stage, signalled, until
from protocols.wire.roles import Role
from secure_fgl.sites.ending import kill
from secure_fgl.transports.nvflare import kits

KINDS: dict[str, tuple[Role | None, str]] = {
    "client's session": (Role.CLIENT, "session"),
    "client's supervisor": (Role.CLIENT, "supervisor"),
    "client's relay": (Role.CLIENT, "relay"),
    "client's engine": (Role.CLIENT, "engine"),
    "client's whole site": (Role.CLIENT, "site"),
    "client's session hangs": (Role.CLIENT, "hang"),
    "authority's session": (Role.KEY_AUTHORITY, "session"),
    "authority's relay": (Role.KEY_AUTHORITY, "relay"),
    "authority's whole site": (Role.KEY_AUTHORITY, "site"),
    "aggregator's session": (Role.AGGREGATOR, "session"),
    "aggregator's supervisor": (Role.AGGREGATOR, "supervisor"),
    "server's relay": (Role.AGGREGATOR, "server relay"),
    "server's engine": (Role.AGGREGATOR, "engine"),
    "conduct": (None, "conduct"),
}
"""Every kind of process, and whose it is, but a client's process of answers, see `SINGLE`."""

SINGLE: dict[str, tuple[Role | None, str]] = {
    "client's process of answers": (Role.CLIENT, "answers"),
    "client's relay hangs": (Role.CLIENT, "relay stops"),
    "authority's session hangs for good": (Role.KEY_AUTHORITY, "stop"),
    "server between rounds": (Role.AGGREGATOR, "between"),
    "server inside a round": (Role.AGGREGATOR, "inside"),
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
        deadline: of an exchange, seconds.
    """

    stage: Stage
    seed: int
    deadline: float
    played: list[Fault] = field(default_factory=list)
    hopeless: int = 0
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
        site = self._chance.choice(self.stage.sites(role)) if role is not None else kits.SERVER
        if what in ("between", "inside"):
            self._moment(what)
        else:
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

    def _moment(self, what: str) -> None:
        """Wait until a round has just begun, or until somebody is awaited in one."""
        stage, begun = self.stage, self.stage.round()

        def here() -> bool:
            if what == "between":
                return stage.round() > begun
            return (found := stage.status()) is not None and bool(found.awaited)

        until(here, BACK_SECONDS, 0.01)

    def _hurt(self, site: str, what: str) -> bool:
        processes = self.stage.processes
        if what == "conduct":
            self.stage.offices[-1].kill()
            return True
        if what in ("site", "gone", "between", "inside"):
            processes.kill(site)
            self.gone |= {site} if what == "gone" else set()
            return True
        if what == "engine":
            kill([processes.running.pop(site)])
            return True
        if what == "supervisor":
            processes.at_parties[site].kill()
            return True
        stops = {"hang": "session", "stop": "session", "relay stops": "relay"}
        number = self.stage.number(site, stops.get(what, what))
        if number is None:
            return False
        signalled(number, signal.SIGSTOP if what in stops else signal.SIGKILL)
        if what in ("hang", "relay stops"):
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
        for site in set(self.stage.folders) - self.gone:
            self.stage.restart(site)
        office = self.stage.offices[-1]
        ended = self.stage.finished() or self.stage.refused()
        if office.poll() is not None and not ended:
            self.hopeless += office.returncode == 1
            self.stage.conduct(self.deadline)


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
