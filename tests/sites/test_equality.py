"""Sites learn what the run in memory learns: every algorithm under every preset that admits it.

With the sessions and the loop of real sites, in one process and without a network (`one_process`).
What is drawn from the operating system and moves a result, noise, groups and the order of a
relay's boxes, is the same in both runs (`Draws`): else no two runs of one seed are equal.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from protocols.disclosures._relayed import boxes
from protocols.disclosures.mixed import mixing
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised import decoys
from protocols.disclosures.noised import disclosure as noised
from protocols.disclosures.sum import disclosure as summed
from protocols.errors import NotAdmitted
from protocols.plan.plan import Plan
from protocols.policy.policy import PRESETS
from protocols.sessions.engine import Session
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.budgets import VARIABLE as BUDGETS
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from tests.laws.test_equality import reasons, same
from tests.sites.alike import CARRIED, check_models, check_result, mixtures
from tests.sites.one_process import played
from tests.sites.stage import Parties, assemble

NAMES = algorithm_names()
DRAWING = (boxes, decoys, mixing, noised, summed)
_WHO = threading.local()


class Draws:
    """Stands for the operating system where a draw moves a result; a stream for each party."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int = 0) -> None:
        self.seed, self.taken, receive = seed, Counter[str](), Session.receive

        def received(session: Session, data: bytes) -> Any:
            _WHO.name = session.name
            try:
                return receive(session, data)
            finally:
                del _WHO.name

        patch.setattr(Session, "receive", received)
        for module in DRAWING:
            patch.setattr(module, "entropy", self)

    def __call__(self, count: int) -> bytes:
        self.taken[_WHO.name] += 1
        label = f"{self.seed} {_WHO.name} {self.taken[_WHO.name]}"
        return hashlib.shake_256(label.encode()).digest(count)


def configured(name: str, preset: str, folder: Path) -> Config:
    """Return the small configuration of the laws, with a budget of its own.

    Five clients are too few for noise of one's own: the preset says so. A policy that accepts it is
    the preset otherwise. Who mixes records has enough of them at each client for two groups.
    """
    document = subject.document(name, preset, store=folder / "budgets of memory")
    if subject.mixes(Federation.from_config(Config.parse(document)).build()):
        many = {"customers": 70, "transactions": 100}
        document["data"] = {**subject.BANKS, "options": many, "split": [0.6, 0.2, 0.2]}
    if preset == "ldp":
        policy = {**PRESETS["ldp"].document(), "name": "accepting"}
        for guard in (guard for chain in policy["rules"].values() for guard in chain):
            if guard["guard"] == "own_noise":
                guard["accept_noise"] = True
        document["policy"] = str(folder / "policy.yaml")
        (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    return Config.parse(document)


@dataclass
class Twins:
    """One configuration, played in memory and by parties with folders of their own."""

    memory: Run
    parties: Parties
    drawn: tuple[Counter[str], Counter[str]]

    @property
    def plan(self) -> Plan:
        return self.parties.charter.plan


def twins(config: Config, folder: Path, seeds: tuple[int, int] = (0, 0)) -> Twins:
    """Play both; `seeds` of their draws."""
    counts = []
    with pytest.MonkeyPatch.context() as patch:
        draws = Draws(patch, seeds[0])
        memory = Federation.from_config(config).run(folder / "memory")
        counts.append(draws.taken)
    parties = assemble(config, folder / "parties")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BUDGETS, str(folder / "budgets of sites"))
        draws = Draws(patch, seeds[1])
        desk = played(parties)
        counts.append(draws.taken)
    assert all(answerer.over for answerer in desk.seats.values())
    return Twins(memory, parties, (counts[0], counts[1]))


def check_alike(found: Twins) -> None:
    """Hold the sites to memory: result, models, and how often each party drew."""
    parties, memory = found.parties, found.memory
    results = parties.result(), memory.result
    one, other = (SimpleNamespace(plan=found.plan, result=result) for result in results)
    if "cosines" in reasons(one, one):  # ciphertexts of real numbers: noise that nobody can plant
        assert same(one, other)
        check_result(parties, memory, ("form", "lost_rounds", "rounds", *CARRIED))
    else:
        check_result(parties, memory)
        check_models(parties, memory)
    assert found.drawn[0] == found.drawn[1]


def check_gathered(parties: Parties, folder: Path) -> None:
    """Gather what every party hands over, and verify the whole."""
    handed = [write_hand_over(f, folder / f"{f.name}.zip")[0] for f in parties.folders.values()]
    assert gather_files(handed, folder / "gathered").missing == ()
    found = Run(folder / "gathered").verify()
    assert found.verdict == "self-consistent only", found.failed


def mixed(plan: Plan, *, unsafe: bool) -> bool:
    """Tell whether a plan has mixtures, those in clear included or not."""
    mixed = [item for item in plan.items if item.disclosure is Disclosure.MIXED]
    return any(unsafe or not item.unsafe for item in mixed)


QUICK = {("fed_avg", "masks"), ("fed_mf", "calibrated")}
"""One without draws of the operating system, and one with noise and budgets; the rest is `long`."""


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        pytest.param(n, p, marks=() if (n, p) in QUICK else pytest.mark.long)
        for n in NAMES
        for p in sorted(PRESETS)
    ],
)
def test_sites_learn_what_memory_learns(name: str, preset: str, tmp_path: Path) -> None:
    config = configured(name, preset, tmp_path)
    try:
        Federation.from_config(config).plan()
    except NotAdmitted:
        with pytest.raises(NotAdmitted):  # nor do parties agree on it
            assemble(config, tmp_path / "parties")
        return
    found = twins(config, tmp_path)
    check_alike(found)
    noisy = any(item.noise is not None for item in found.plan.items)
    assert bool(found.drawn[0]) == (noisy or mixed(found.plan, unsafe=True))
    groups = [2] * subject.CLIENTS if mixed(found.plan, unsafe=False) else []
    assert mixtures(found.parties) == groups
    check_gathered(found.parties, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("name", "preset"), [("fed_avg", "calibrated"), ("fed_ego", "shuffled")])
def test_without_the_same_draws_they_differ(name: str, preset: str, tmp_path: Path) -> None:
    """The control of `Draws`, and of what is compared."""
    found = twins(configured(name, preset, tmp_path), tmp_path, seeds=(0, 1))
    parties, memory = found.parties, found.memory
    for check in (check_result, check_models):
        with pytest.raises(AssertionError):
            check(parties, memory)
    check_result(parties, memory, ("form", "lost_rounds", "rounds", *CARRIED))
    assert parties.result()["model_sha256"] != memory.result["model_sha256"]
    check_gathered(parties, tmp_path)
