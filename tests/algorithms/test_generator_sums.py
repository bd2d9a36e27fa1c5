"""FedSage+ with others' help: what is answered, who reads it, and what leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._shared.generator_sums import Apply, Help, Helped, Matched, Told, Turn, with_steps
from algorithms._shared.neighbour_sizes import Sizes
from algorithms._shared.neighbours import answered, at_codes, draw, inputs, nearest
from algorithms.tasks import Site
from algorithms.tasks.inputs import NodeData
from audits.accounting import rows
from audits.accounting.account import account
from audits.attacks import AttackRow, attack
from protocols.errors import NotAdmitted, RoundLost
from protocols.forms import Algorithm, Form
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Reply, Sealed
from secure_fgl.attack_inputs.materials import material
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.algorithms.test_neighbours import node_graph
from tests.laws.runs import Recording, record
from tests.protocols.toys import DATA, changed_policy, names_of
from tests.protocols.wire import World

SIZES = Sizes(features=6, latent=5, hidden=4, draws=3)
SEED = 11


def _help(steps: int = 1, codes: int = 4, clip: float = 1e3) -> Help:
    return Help(SIZES, steps, codes, clip, rate=0.5)


def _site(number: int, nodes: int = 24) -> Site:
    return Site(_data(number, nodes), seed=number)


def _data(number: int, nodes: int = 24) -> NodeData:
    graph = node_graph(nodes)
    graph.x = np.random.default_rng(number).random((nodes, 6)).astype(np.float32) + 0.01
    return NodeData.from_graph(graph)


def _world(help: Help, policy: str = "masks") -> World:
    form: Form[Any] = Form("helped", _never, help.exchanges())
    made: Algorithm[Any] = Algorithm("toy", "none", _never, _never, (form,), {"g": SIZES.size})
    chosen = changed_policy(policy, rekey_rounds=4)
    names = names_of(5)
    plan = make_plan(made, chosen, data=DATA, clients=names, rounds=1, scheme=None)
    world = World(form, chosen, plan=plan, clients=names)
    for number, name in enumerate(names):
        world.clients[name]._site = _site(number)
    return world.start()


def _never(*_: Any) -> Any:
    raise NotImplementedError


def _alone(sites: list[Site], weights: Any, place: tuple[int, ...], codes: int) -> Any:
    """Return the cross term's gradient by autograd, in one process, without messages."""
    at = torch.tensor(weights, requires_grad=True)
    words = np.random.SeedSequence(place).generate_state(1, np.uint64)
    public = torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))
    entered = inputs(torch.randn((codes, SIZES.latent), generator=public), SIZES.draws, public)
    loss = torch.zeros(())
    for site in sites:
        own, features = site.data.nodes, site.data.x
        held = features if isinstance(features, torch.Tensor) else features.matrix.to_dense()
        pool = torch.from_numpy(site.generator("pools").integers(codes, size=own))
        for code in range(codes):
            mine = held[pool == code]
            if len(mine):
                rows = draw(SIZES, at, entered[code : code + 1]).rows
                wanted = nearest(rows.detach(), mine, torch.ones(1, len(mine), dtype=torch.bool))
                loss = loss + (rows - wanted).square().sum() / SIZES.draws
    (found,) = torch.autograd.grad(loss, at)
    return found.numpy()


def test_the_cross_term_through_messages_is_the_one_in_one_process() -> None:
    """Nothing is clipped, and nothing noised; the grid alone is between the two."""
    help = _help(clip=20.0)
    world = _world(help)
    (tokens,) = _steps(world, help)
    assert len(tokens) == 5
    field = world.plan.item("answer.up.SUM").messages[0].fields[0]
    step = float(field.step) * help.codes * help.clip  # of what the grid tells apart
    for number, name in enumerate(world.names):
        sites = [_site(other) for other in range(5) if other != number]
        for site in sites:
            for _ in range(number):  # whoever read before drew pools, too
                site.generator("pools")
        wanted = _alone(sites, help.initial(SEED), (SEED, 0, number), help.codes)
        moved = world.clients[name]._site.memory["joint"] - help.initial(SEED)
        got = -moved / (help.rate * help.clip) * 4 * help.codes * help.clip
        assert np.abs(wanted).max() > 20 * step
        assert np.abs(got - wanted).max() < 5 * step


def _steps(world: World, help: Help) -> list[list[Sealed]]:
    """Play the aggregator's side; return the tokens of every step."""
    played, reply, found = help.steps_of(SEED, Cohort(world.names)), None, [[]]
    while True:
        try:
            ask = played.send(reply) if reply is not None else next(played)
        except StopIteration:
            return found
        world.pump(world.aggregator.ask(ask, 1))
        reply = world.aggregator.reply()
        if Matched in ask.wanted:
            found[-1].append(reply.handed(Matched))


def test_one_node_moves_an_answer_by_two_shares_and_no_edge_does() -> None:
    """Control: with one pool for all codes, a node that all draws are near to moves it by more."""
    data, weights, codes, clip, most = _data(3), _help().initial(SEED), 16, 0.05, 0.0
    place = (SEED, 0, 0)

    def said(one: NodeData, number: int) -> Any:
        rng = np.random.default_rng(number)
        return answered(one, SIZES, weights, place, rng, codes=codes, clip=clip)

    def pooled(one: NodeData) -> Any:
        everyone = torch.ones((codes, one.nodes), dtype=torch.bool)
        slope = at_codes(SIZES, torch.from_numpy(weights), place, _dense(one), everyone)
        return slope.total(clip / slope.norms().clamp_min(clip) / (codes * clip)).numpy()

    moved = []
    for number in range(6):
        before = said(data, number)
        assert np.linalg.norm(before) <= 1.0 + 1e-6
        for node in range(0, 24, 5):
            x = _dense(data).clone()
            x[node] = -0.5  # nearer to most draws than any other node
            other = _with_features(data, x)
            most = max(most, float(np.linalg.norm(said(other, number) - before)))
            moved.append(float(np.linalg.norm(pooled(other) - pooled(data))))
    assert 1e-3 < most <= 2.0 / codes + 1e-6 < max(moved)
    cut = _with_edges(data, data.edges[:, :0])
    assert np.array_equal(said(cut, 1), said(data, 1))


def _dense(data: NodeData) -> Any:
    return data.x if isinstance(data.x, torch.Tensor) else data.x.matrix.to_dense()


def _with_features(data: NodeData, x: torch.Tensor) -> NodeData:
    return replace(data, x=x.to(torch.float32), kept={}, _propagation={})


def _with_edges(data: NodeData, edges: torch.Tensor) -> NodeData:
    return replace(data, edges=edges, kept={}, _propagation={})


def test_what_leaves_follows_from_what_was_handed_and_from_none_of_the_data() -> None:
    help, total = _help(steps=2), Matched(slope=np.linspace(-1, 1, SIZES.size))
    given = Apply(seed=SEED, answers=4)
    one, other = _site(1), _site(2, nodes=40)
    told = [help.move(site, given, total) for site in (one, other)]
    assert np.array_equal(told[0].generator, told[1].generator)
    assert told[0].generator.shape == (5, SIZES.size)
    wanted = help.initial(SEED) - 0.5 * 1e3 / 4 * total.slope
    assert np.allclose(told[0].generator, wanted, rtol=1e-5)
    assert not np.array_equal(
        help.answer(one, Turn(seed=SEED, step=0, reader=0)).slope,
        help.answer(other, Turn(seed=SEED, step=0, reader=0)).slope,
    )


def test_steps_end_where_a_client_is_away_and_are_begun_once() -> None:
    help = _help(steps=3)
    cohort = Cohort(names_of(5))
    played = help.steps_of(SEED, cohort)
    next(played)
    with pytest.raises(StopIteration):
        played.send(Reply({}, answers=4))

    class Never(Exception):
        pass

    def once(state: Turn, cohort: Cohort) -> Any:
        raise Never
        yield Ask(cohort, given=state)

    start = Turn(seed=SEED, step=0, reader=0)
    form = with_steps("helped", Form("plain", once, ()), help, lambda state: state.seed)
    round = form.round(Helped(start), cohort)
    next(round)
    with pytest.raises(StopIteration) as lost:  # the round is lost, and the steps with it
        round.throw(RoundLost("too few"))
    assert lost.value.value == Helped(start, begun=True)
    with pytest.raises(Never):
        next(form.round(lost.value.value, cohort))


# --- a run ----------------------------------------------------------------------------------------


def _config(policy: str, path: Path) -> Config:
    document = subject.document("fed_sage_plus", policy, rounds=1, store=path / "budgets")
    options = {"alpha": 1.0, "joint": 2, "codes": 8, "steps": 5}
    document["algorithm"]["options"] = {"fed_sage_plus": options}
    return Config.parse(document)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("sums")
    return record(_config("calibrated", path), path / "run")


def test_a_run_says_fgen_alone_beside_sums_and_verifies(run: Recording) -> None:
    assert run.run is not None and run.run.verify().verdict.startswith("self-consistent")
    plan = run.plan
    assert plan.form.startswith("generator_sums")
    by_clients = {type(m).__name__ for sender, _, m in run.said if sender.startswith("client-")}
    own = {"Change", "Matched", "Told"}
    assert own <= by_clients
    planned = {m.name for i in plan.items if i.sender == "client" for m in i.messages}
    layers = {
        m.name for i in plan.items if i.sender == "client" and i.step != "up" for m in i.messages
    }
    assert planned - layers == own
    assert {m.generator.shape[0] for _, _, m in run.said if isinstance(m, Told)} == {5}


def test_epsilon_of_answers_stands_in_plan_and_account(
    run: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", "left out")])
    plan = run.plan
    answer, told = plan.item("answer.up.SUM"), plan.item("move.up.SEALED")
    assert answer.noise is not None and answer.noise.releases == 1 + 10
    assert answer.reader == "client" and told.follows and told.noise is None
    assert plan.budget.startswith("epsilon <= 8.0") and "answer.up.SUM" in plan.budget
    assert any(text.startswith("move.up.SEALED: follows") for text in plan.warnings)
    assert run.run is not None
    found = account(run.run.view())
    assert found.verdict == "NOT FALSIFIED"
    assert found.scopes[-1].planned.value <= "8.1"


def _attacked(run: Recording) -> AttackRow:
    assert run.run is not None
    return next(row for row in attack(material(run.run), ["A14"]).rows if row.id == "A14")


def test_a14_reads_nothing_in_sums_under_noise(run: Recording) -> None:
    found = _attacked(run)
    assert found.verdict == "PASS" and found.payload == "P12"
    assert found.raw is not None and float(found.raw.value) > 0.9  # one answer would fall


@pytest.mark.long
def test_a14_control_each_answer_in_clear_gives_its_records_away(tmp_path: Path) -> None:
    found = _attacked(record(_config("unsafe_plaintext", tmp_path), tmp_path / "run"))
    assert found.verdict == "FAIL"
    assert found.protected is not None and float(found.protected.value) > 0.9


@pytest.mark.parametrize("policy", ["masks", "pilot"])
def test_without_noise_no_client_helps_another(policy: str, tmp_path: Path) -> None:
    with pytest.raises(NotAdmitted) as refused:
        Federation.from_config(_config(policy, tmp_path)).plan()
    assert "Matched is for one client" in refused.value.why


def test_in_clear_it_runs_and_is_flagged(tmp_path: Path) -> None:
    plan = Federation.from_config(_config("unsafe_plaintext", tmp_path)).plan()
    assert plan.form == "generator_sums"
    assert plan.item("answer.up.SUM").unsafe
    assert any("answer.up.SUM" in text for text in plan.warnings)
    assert PrivacyPolicy.preset("unsafe_plaintext").minimum_cohort == 2
