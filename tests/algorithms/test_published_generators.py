"""FedSage+ as published: what leaves, who admits it, and that A14 names records in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._shared.neighbour_sizes import Learning, Sizes
from algorithms._shared.neighbours import draw
from algorithms._shared.published_generators import Crossed, Look, Published, Shown, everybody
from algorithms.tasks import Site
from algorithms.tasks.inputs import NodeData
from audits.attacks import AttackRow, attack
from protocols.disclosures.names import Disclosure
from protocols.errors import NotAdmitted
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.rounds import Cohort, Reply
from secure_fgl.attack_inputs.materials import material
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.algorithms.test_neighbours import node_graph
from tests.protocols.toys import names_of

SIZES = Sizes(features=6, latent=5, hidden=4, draws=3)
SEED = 11


def _aid(clip: float = 1e3) -> Published:
    return Published(SIZES, 2, 8, clip, 0.5, Learning(share=0.3))


def _site(number: int) -> Site:
    graph = node_graph(24)
    graph.x = np.random.default_rng(number).random((24, 6)).astype(np.float32) + 0.01
    return Site(NodeData.from_graph(graph), seed=number)


def test_a_client_answers_with_the_gradient_at_what_others_showed_and_none_at_its_own() -> None:
    aid, sites = _aid(), [_site(number) for number in range(4)]
    given = everybody(SEED, 0, [aid.show(site, Look(seed=SEED)) for site in sites])
    assert given.codes.shape == (4, 8, 5)
    told = [aid.answers(site, given) for site in sites]
    places = [site.memory["place"] for site in sites]
    assert sorted(places) == [0, 1, 2, 3]
    weights = torch.tensor(given.generators[0], requires_grad=True)
    for site, mine, answers in zip(sites, places, told, strict=True):
        assert not answers[mine].slope.any()
        for place, one in enumerate(answers):
            if place == mine:
                continue
            assert len(one.entered) == np.minimum(given.missing[place], SIZES.draws).sum() > 0
            rows = draw(SIZES, weights, torch.from_numpy(one.entered)).rows[:, 0]
            held = torch.as_tensor(site.data.x)[torch.from_numpy(one.own)]
            away = torch.cdist(rows, held).detach()
            away[~torch.from_numpy(one.allowed)] = torch.inf
            loss = (rows - held[away.argmin(dim=1)]).square().sum(dim=1).mean()
            (wanted,) = torch.autograd.grad(loss, weights)
            assert np.abs(wanted.numpy() - one.slope).max() < 1e-4 < np.abs(one.slope).max()


def test_steps_sum_all_gradients_and_end_where_a_client_is_away() -> None:
    aid, sites = _aid(), [_site(number) for number in range(4)]
    played = aid.steps_of(SEED, Cohort(names_of(4)))
    ask = next(played)
    shown = tuple(aid.show(site, *ask.handed) for site in sites)
    ask = played.send(Reply({Shown: _Each(shown)}, answers=4))
    crossed = tuple(aid.cross(site, *ask.handed) for site in sites)
    ask = played.send(Reply({Crossed: _Each(crossed)}, answers=4))
    (summed,) = ask.handed
    assert np.allclose(summed.slopes, np.sum([one.slopes for one in crossed], axis=0), atol=1e-6)
    for site in sites:
        own = site.memory["own"]
        aid.settle(site, summed)
        mean = (summed.slopes[site.memory["place"]] + own) / 4
        assert np.allclose(site.memory["joint"], aid.initial(SEED) - 0.5 * mean, atol=1e-5)
    with pytest.raises(StopIteration):
        played.send(Reply({}, answers=3))


class _Each:
    """What was read of four clients' messages."""

    verb = "each"

    def __init__(self, messages: tuple[Any, ...]) -> None:
        self._messages = messages

    def read(self, verb: str, **options: Any) -> Any:
        return self._messages


# --- a run ----------------------------------------------------------------------------------------


def _config(policy: str, **options: Any) -> Config:
    document = subject.document("fed_sage_plus", policy, rounds=1)
    document["evaluation"] = {"references": []}
    document["algorithm"]["options"] = {"fed_sage_plus": {"steps": 5, **options}}
    return Config.parse(document)


PUBLISHED = {"alpha": 1.0, "joint": 2, "codes": 16, "published": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = _config("unsafe_plaintext", **PUBLISHED)
    return Federation.from_config(config).run(tmp_path_factory.mktemp("published") / "run")


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_in_clear_alone_it_is_admitted(policy: str) -> None:
    federation = Federation.from_config(_config(policy, **PUBLISHED))
    if policy == "unsafe_plaintext":
        assert federation.plan().form == "published"
        return
    with pytest.raises(NotAdmitted):
        federation.plan()


def test_noise_of_ones_own_does_not_make_it_lawful() -> None:
    """The preset `ldp` names NOISED, and refuses counts; a bare vector it would let out."""
    policy = PrivacyPolicy.preset("ldp")
    form = Federation.from_config(_config("unsafe_plaintext", **PUBLISHED)).build()[1].forms[0]
    crossed = next(exchange for exchange in form.exchanges if exchange.name == "cross")
    assert Disclosure.NOISED in policy.rules and crossed.back == (Crossed,)
    with pytest.raises(NotAdmitted, match="ldp") as refused:
        Federation.from_config(_config("ldp", **PUBLISHED)).plan()
    assert "only in clear, as a control" in refused.value.why


def test_plan_and_report_say_unsafe_and_a14_names_the_records(run: Run, tmp_path: Path) -> None:
    plan = Federation.from_config(_config("unsafe_plaintext", **PUBLISHED)).plan()
    for name in ("show.up.NOISED", "move.up.NOISED", "cross.up.NOISED"):
        assert plan.item(name).unsafe
        assert f"UNSAFE: {name} leaves in clear" in plan.warnings
    assert plan.item("cross.down").learns["client"].startswith("what single clients said")
    assert "single" not in plan.item("settle.down").learns["client"]
    told = "UNSAFE: cross.down: every client reads what single other clients said in clear"
    assert told in plan.warnings
    assert run.verify().verdict.startswith("self-consistent")
    found = _a14(run)
    assert found.verdict == "FAIL" and found.payload == "P12"
    assert found.protected is not None and float(found.protected.value) > 0.9
    assert found.null is not None and float(found.null.value) < 0.2
    (path,) = run.report(["json"], tmp_path)
    sent = {one["item"]: one for one in json.loads(path.read_text("utf-8"))["inventory"]}
    assert sent["cross.up.NOISED"]["unsafe"] and sent["show.up.NOISED"]["unsafe"]


def test_control_where_no_client_helps_another_a14_has_nothing_to_solve(tmp_path: Path) -> None:
    alone = Federation.from_config(_config("unsafe_plaintext")).run(tmp_path / "run")
    found = _a14(alone)
    assert found.verdict == "NOT_APPLICABLE"


def _a14(run: Run) -> AttackRow:
    return next(row for row in attack(material(run), ["A14"]).rows if row.id == "A14")


def test_it_is_a_form_in_which_clients_help() -> None:
    with pytest.raises(Exception, match="set alpha > 0"):
        Federation.from_config(_config("unsafe_plaintext", published=True)).plan()
