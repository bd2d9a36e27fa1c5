"""What attacks are given of captured changes of the model whose total one client alone reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audits.attacks import Material, attack
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.protocols.toys import names_of

PASSED_ON = '''
"""Each client in turn reads what the training of all others changed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from algorithms.tasks import Task
from algorithms.tasks import ClientModel
from algorithms.tasks import Site
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Message, Receiver, ReleasedMessage, SumMessage, Vector, real
from protocols.rounds import Ask, Cohort, Round


class Start(ReleasedMessage):
    weights: Vector = real("d", unit="weight", meaning="the model", wire="f4")


class Turn(ReleasedMessage):
    weights: Vector = real("d", unit="weight", meaning="the model once more", wire="f4")


class Moved(SumMessage):
    receiver: ClassVar[Receiver] = "client"
    delta: Vector = real("d", unit="weight", meaning="change of the model")


def passed_on(task: Task, *, epochs: int = 1) -> Algorithm[Any]:
    """Return the algorithm for a task."""

    def look(site: Site, given: Start) -> None:
        site.memory["trained"] = given.weights

    def say(site: Site, given: Turn) -> Moved:
        fitted = task.fit(given.weights, site, epochs=epochs)
        site.memory["trained"] = fitted
        return Moved(delta=fitted.astype(np.float64) - given.weights)

    def read(site: Site, given: Moved) -> None:
        site.memory["others"] = np.asarray(given.delta)

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        yield Ask(cohort, given=state)
        reply = yield Ask(cohort, given=Turn(weights=state.weights), back=Moved)
        yield Ask(cohort, given=reply.handed(Moved))
        return state

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((given.weights if isinstance(given, Start) else site.memory["trained"],))

    exchanges = (
        Exchange("look", (Start,), (), look),
        Exchange("say", (Turn,), (Moved,), say),
        Exchange("read", (Moved,), (), read),
    )
    form = Form("read", round, exchanges)
    start = lambda rng: Start(weights=task.initial(rng))
    return Algorithm("passed_on", "none", start, model, (form,), {"d": task.size})


ALGORITHM = passed_on
'''


def _given(folder: Path, policy: str) -> Material:
    file = folder / "passed_on.py"
    file.write_text(PASSED_ON, "utf-8")
    document = {
        "algorithm": {"name": "passed_on", "rounds": 2},
        "model": {"hidden": 4},
        "data": {
            "name": "synthetic_banks",
            "options": {"customers": 40, "transactions": 60},
            "partition": {"name": "by_owner", "clients": 5},
        },
        "evaluation": {"references": []},
        "budget": {"store": str(folder / "budgets")},
        "policy": policy,
    }
    run = Federation(config=Config.parse(document), plugins=[file]).run(folder / "run")
    return material(run, profile="default", plugins=[file])


def _said(found: Material, round: int) -> dict[str, np.ndarray]:
    return {one.client: one.raw["delta"] for one in found.exposures if one.round == round}


def test_its_reader_sees_the_sum_of_all_others_and_is_seen_by_nobody(tmp_path: Path) -> None:
    """It was an error before, and in clear the reader's zeros were evidence of another run."""
    found = _given(tmp_path, "masks")
    others = names_of(5)[1:]  # the first client reads in each round
    assert [(one.client, one.round) for one in found.exposures] == [
        (name, number) for name in others for number in (1, 2)
    ]
    for one in found.exposures:
        assert one.seen is not None and one.cohort == 4
        total = np.sum(list(_said(found, one.round).values()), axis=0)
        assert np.abs(one.seen["delta"] - total).max() < 1e-3 < np.abs(total).max()
    rows = [row for row in attack(found).rows if row.id in ("A04", "A05")]
    assert rows and {row.payload for row in rows} == {"P05"}


def test_control_in_clear_each_change_is_read_by_itself(tmp_path: Path) -> None:
    found = _given(tmp_path, "unsafe_plaintext")
    assert {one.client for one in found.exposures} == set(names_of(5)[1:])
    for one in found.exposures:
        assert one.seen is not None and one.cohort == 1
        assert np.abs(one.seen["delta"] - one.raw["delta"]).max() < 1e-3


@pytest.mark.long
def test_under_noise_the_total_is_noised_as_much_as_the_run_s(tmp_path: Path) -> None:
    found = _given(tmp_path, "calibrated")
    item = found.case.plan.item("say.up.SUM")
    assert item.noise is not None
    step = float(item.messages[0].fields[0].step)
    wide = step * float(item.noise.sigma) * 2.0  # of four shares
    for one in found.exposures:
        assert one.seen is not None
        total = np.sum(list(_said(found, one.round).values()), axis=0)
        apart = np.std(one.seen["delta"] - total)
        assert 0.7 * wide < apart < 1.4 * wide
