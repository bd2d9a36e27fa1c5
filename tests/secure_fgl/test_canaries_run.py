"""Canaries on real runs: put in by coins that are committed to, counted nowhere, found again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from algorithms.tasks import Site
from audits.attacks import Material, attack
from audits.checks.canaries import secrets_of
from audits.evidence.steps import Case
from audits.evidence.verify import Status, verify
from protocols.errors import EvidenceError, NotAdmitted, NotInPlan, Refused, SecureFglError
from protocols.evidence.captures import (
    Canaries,
    canary_words,
    coins,
    commitment,
    content_key,
    new_secret,
    opened,
    planted_objection,
)
from protocols.evidence.ledger import MemoryStore, read_lines
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.client import ClientSession
from protocols.sessions.part import Scope
from secure_fgl.attack_inputs.captured_sent import agree, summed, updates
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.isolation import frames
from secure_fgl.isolation.frames import PlainCodec
from secure_fgl.isolation.sandbox import Sandbox
from secure_fgl.isolation.worker import Answers
from secure_fgl.run.parties import Making, Parties, set_up
from secure_fgl.store.finished_run import Run
from tests import forked
from tests.laws.killing import play as play_apart
from tests.laws.runs import config as law_config
from tests.secure_fgl import test_canary_records
from tests.secure_fgl.cli_tools import few

RECORDS, CLIENTS = 40, 4
BANKS = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 60},
    "partition": {"name": "iid_nodes", "clients": CLIENTS},
}


def policy(preset: str = "unsafe_plaintext", records: int = RECORDS) -> PrivacyPolicy:
    """Return a policy with canaries, for sites of any number of records."""
    return few(preset).changed(name="own", canaries={"records": records})


def config(**facts: Any) -> Config:
    document = {
        "algorithm": {"name": "fed_avg", "rounds": 1, "epochs": 20},
        "model": {"name": "graph_sage", "hidden": 16, "dropout": 0.0, "weight_decay": 0.0},
        "data": BANKS,
        "evaluation": {"references": []},
        "transport": {"workers": 1},
    }
    return Config.parse({**document, **facts})


def run(folder: Path, chosen: PrivacyPolicy | None = None, **facts: Any) -> Run:
    return Federation(config=config(**facts), policy=chosen or policy()).run(folder)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("planted") / "run")


@pytest.fixture(scope="module")
def given(planted: Run) -> Material:
    return material(planted)


def step(found: Run) -> tuple[str, str]:
    """Return how the step ended, and what it says."""
    (one,) = [s for s in verify(found.view()).steps if s.name == "canaries"]
    return one.status, one.detail


def test_coins_are_committed_to_first_and_opened_last(planted: Run) -> None:
    verification = planted.verify()
    assert verification.ok and step(planted)[0] == Status.OK
    assert f"{CLIENTS} of {CLIENTS} clients opened" in step(planted)[1]
    case = Case(planted.view())
    for client in case.plan.clients:
        first, *middle, last = case.ledger_index.entries[client]
        assert first["seq"] == 0 and not any("canaries" in entry for entry in middle)
        assert opened(last["canaries"], first["canaries"], case.roster_file.run, client)
    assert "canaries" not in case.ledger_index.entries["aggregator"][0]
    assert len(set(secrets_of(case).values())) == CLIENTS
    assert {*canary_words(case.policy.canaries, "node")} < {*case.plan.warnings}
    assert "40 nodes without edges (canaries)" in " ".join(case.plan.warnings)


def test_they_train_and_are_counted_nowhere(planted: Run, given: Material) -> None:
    """What left is what the sites compute with their canaries, divided by real records alone."""
    bare = Federation(config=config(), policy=PrivacyPolicy.preset("unsafe_plaintext")).prepare()
    bare.load()
    counts = {name: s.count for name, s in zip(bare.plan.clients, bare.sites, strict=True)}
    assert {one.client: int(one.raw["count"]) for one in given.exposures} == counts
    for one in given.exposures:  # so classes of records are those of real ones, too
        assert one.truth.labels is not None and one.truth.labels.sum() == counts[one.client]
    assert given.canaries is not None and given.canaries.arrived == set(counts)
    assert all(0 < flips.sum() < RECORDS for flips in given.canaries.coins.values())
    tested = {
        name: int(s.data.test.sum()) for name, s in zip(bare.plan.clients, bare.sites, strict=True)
    }
    assert given.tested == tested


def test_a11_finds_them_where_nothing_hides_them(given: Material) -> None:
    rows = [row for row in attack(given, ["A11"]).rows if row.id == "A11"]
    loss, span, model, *_ = rows
    assert (loss.payload, span.payload, model.payload) == ("P01", "P01", "P19")
    assert loss.what.endswith("by loss") and span.what.endswith("by span")
    assert loss.protected is not None and model.protected is not None
    assert float(loss.protected.value) > 0.6  # ten deviations from what it reaches; coins are fresh
    assert {row.n_clients for row in rows} == {CLIENTS}


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda s: {"canaries": new_secret().hex()}, "other coins of its canaries"),
        (lambda s: {}, "did not open"),
        (lambda s: {"canaries": s.canary_secret.hex()}, ""),
    ],
    ids=["chosen-afterwards", "not-opened", "control"],
)
def test_other_coins_than_were_committed_to_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[Any], dict[str, str]],
    said: str,
) -> None:
    honest = ClientSession.opened
    monkeypatch.setattr(
        ClientSession, "opened", lambda s: lie(s) if s.name == "client-2" else honest(s)
    )
    facts = {"name": "fed_avg", "rounds": 1, "epochs": 1}
    found = run(tmp_path / "run", algorithm=facts)
    status, detail = step(found)
    assert (status == Status.FAIL) == bool(said)
    assert said in detail and ("client-2" in detail) == bool(said)
    if said:
        assert "BROKEN" in found.verify().verdict.upper() or not found.verify().ok
        with pytest.raises(SecureFglError, match="client-2"):
            material(found)


def test_a_secret_that_anybody_could_guess_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coins are known, and the chain is whole: only this step finds it."""
    drawn = iter([bytes(32), *(new_secret() for _ in range(CLIENTS - 1))])
    monkeypatch.setattr("protocols.roles.client.new_secret", lambda: next(drawn))
    found = run(tmp_path / "run", algorithm={"name": "fed_avg", "rounds": 1, "epochs": 1})
    status, detail = step(found)
    assert status == Status.FAIL and "guessed the coins" in detail
    assert [s.name for s in verify(found.view()).steps if s.status is Status.FAIL] == ["canaries"]


def test_commitments_bind_run_and_party_and_tell_nothing_of_the_secret() -> None:
    secret = new_secret()
    told = commitment(secret, "run", "client-1")
    assert opened(secret.hex(), told, "run", "client-1") == secret
    for run_name, party in (("other", "client-1"), ("run", "client-2")):
        with pytest.raises(SecureFglError, match="other coins"):
            opened(secret.hex(), told, run_name, party)
    for text in ("", "zz" * 32, "00" * 31):
        with pytest.raises(SecureFglError, match="no secret"):
            opened(text, told, "run", "client-1")
    flips = coins(secret, 4000)
    assert abs(flips.mean() - 0.5) < 0.06 and np.array_equal(flips, coins(secret, 4000))
    assert abs((flips == coins(new_secret(), 4000)).mean() - 0.5) < 0.06  # both fail in 1e-13


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_with_its_own_coins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed again with the opened coins is what left, before the kill and after it."""
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(policy().document()))
    facts = {"name": "fed_avg", "rounds": 2, "epochs": 1}
    chosen = config(algorithm=facts, policy=str(file))
    first = play_apart(chosen, tmp_path / "run", at=2 * CLIENTS + 2, after=True)
    assert first.killed, first.error
    ended = play_apart(chosen, tmp_path / "run", resume=True)
    assert ended.result is not None, ended.error
    found = Run(tmp_path / "run")
    assert step(found)[0] == Status.OK
    again = material(found, profile="default")
    assert {one.round for one in again.exposures} == {1, 2}  # each was held against what left


def test_a_site_without_its_canaries_does_not_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "secure_fgl.run.simulation.planting", lambda *facts: contextlib.nullcontext()
    )
    with pytest.raises(Refused):
        run(tmp_path / "run")
    for file in (tmp_path / "run" / "ledger").glob("client-*.jsonl"):
        entries = [entry for entry, _ in read_lines(file.read_bytes())]
        assert any("without the canaries" in str(e.get("detail", e)) for e in entries)
        assert not any(str(e.get("item")).startswith("train.up") for e in entries)


def test_a_plan_that_does_not_list_them_is_refused() -> None:
    federation = Federation(config=config(), policy=policy())
    plan = federation.plan()
    told = {*canary_words(federation.policy.canaries, "node")}
    bare = plan.model_copy(update={"warnings": tuple(w for w in plan.warnings if w not in told)})
    assert len(bare.warnings) == len(plan.warnings) - 1
    for one, refused in ((plan, False), (bare, True)):
        with pytest.raises(NotInPlan, match="canaries") if refused else contextlib.nullcontext():
            made = federation.prepare(one)
            made.load()
            _parties(made)


def _parties(made: Any) -> Parties:
    """Make all sessions of a run, without any file."""
    return set_up(
        Making(
            made.plan, made.policy, made.form(), made.sites, scheme=made.scheme,
            store=lambda name: MemoryStore(), seed=1,
        )
    )  # fmt: skip


@pytest.mark.parametrize("preset", ["pilot", "strict"])
def test_messages_that_would_count_them_are_not_admitted(preset: str) -> None:
    """Mixtures hold single records, and sums of classes count them."""
    chosen = config(algorithm={"name": "fed_ego"}, model={})
    Federation(config=chosen, policy=PrivacyPolicy.preset(preset)).plan()
    with pytest.raises(NotAdmitted) as raised:
        Federation(config=chosen, policy=policy(preset)).plan()
    assert "canaries would be among them" in raised.value.why


def test_what_is_told_of_single_records_is_not_admitted() -> None:
    """A mean of ratings, or one drawn of the items, would be of canaries as well."""
    _, algorithm = Federation.from_config(law_config("fcf")).build()
    forms = {form.name: planted_objection(form, Canaries(records=40)) for form in algorithm.forms}
    for name, kind in (("told_mean", "Taste"), ("told_items", "Opinion")):
        assert kind in (forms[name] or ""), name
    assert forms["noised_items"] is None  # the control: a gradient is computed by training


def test_answers_that_are_isolated_train_on_them_and_the_worker_holds_no_secret(
    planted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What left is what sites with canaries compute; the hand-over holds no secret to open them."""
    forked.use(monkeypatch)
    sent: list[bytes] = []
    honest = frames.ask

    def tapped(channel: Any, content: bytes, seconds: float) -> Any:
        sent.append(content)
        return honest(channel, content, seconds)

    monkeypatch.setattr(frames, "ask", tapped)
    facts = {"name": "fed_avg", "rounds": 1, "epochs": 2}
    found = run(tmp_path / "run", algorithm=facts, isolate=True)
    assert step(found)[0] == Status.OK
    # Held against what left, byte by byte: sites without canaries would have said other updates.
    again = material(found)
    assert again.canaries is not None and len(again.exposures) == CLIENTS
    secrets = secrets_of(Case(found.view()))
    told = b"".join(sent)
    assert not any(s in told or s.hex().encode() in told for s in secrets.values())
    assert all(content_key(s) in told for s in secrets.values())  # the control: keys are seen


def test_isolated_answers_without_canaries_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever forgets the hand-over trains nothing; and a session that lies of it neither."""
    forked.use(monkeypatch)
    facts = {"name": "fed_avg", "rounds": 1, "epochs": 1}
    for number, lie in enumerate((False, True)):

        def forgets(self: Sandbox, session: Any, lie: bool = lie) -> None:
            session.planted = lie

        monkeypatch.setattr(Sandbox, "plant", forgets)
        with pytest.raises(Refused):
            run(tmp_path / str(number), algorithm=facts, isolate=True)


def test_a_worker_takes_canaries_once_and_only_where_there_are_some() -> None:
    site, spec = Site(test_canary_records.nodes(), seed=0), test_canary_records.SPECS["node"]
    chosen = np.ones(RECORDS, dtype=bool)
    asked = PlainCodec(()).pack({"chosen": chosen, "client": "client-1", "key": bytes(32)})
    form: Any = SimpleNamespace(exchanges=(), messages=lambda: ())
    bare = Answers(form, {"client-1": site}, 1.0)
    refused = bare.reply(asked)
    assert refused[0] == frames.ERROR and b'"LocalProtocolError"' in refused[1]
    assert len(site.data.train) == 12
    worker = Answers(form, {"client-1": site}, 1.0, spec)
    assert worker.reply(asked) == (frames.PLANTED, b"") and len(site.data.train) == 12 + RECORDS
    assert worker.reply(asked) == refused
    assert len(site.data.train) == 12 + RECORDS


@pytest.mark.parametrize("isolate", [False, True])
def test_where_data_cannot_hold_them_nothing_is_written(
    tmp_path: Path, isolate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients of four have no training record to make one of; the control has no canaries."""
    forked.use(monkeypatch)
    scarce = {**BANKS, "split": (0.01, 0.49, 0.5)}
    facts: Any = {"data": scarce, "algorithm": {"name": "fed_avg", "rounds": 1, "epochs": 1}}
    with pytest.raises(UsageError, match=r"cannot be put into these data\. \(client-2\)"):
        run(tmp_path / "run", isolate=isolate, **facts)
    assert not (tmp_path / "run").exists()
    if not isolate:
        run(tmp_path / "run", few(), **facts)
        assert (tmp_path / "run" / "result.json").exists()


def test_a_worker_says_itself_that_its_data_cannot_hold_them() -> None:
    """At a site between organisations nobody else has the data; it is asked before the folder."""
    chosen = config(data={**BANKS, "split": (0.01, 0.49, 0.5)}, isolate=True)
    federation = Federation(config=chosen, policy=policy())
    plan = federation.plan()
    order = {
        "clients": ["client-2"],
        "config": chosen.model_dump(mode="json"),
        "plan": plan.text(),
        "plugins": [],
        "policy": json.dumps(federation.policy.document()),
        "seconds": 1.0,
    }
    with pytest.raises(UsageError, match="client-2"):
        Answers.ordered(order)
    assert Answers.ordered({**order, "clients": ["client-1"]})  # the control


def never_ends(session: Any, *facts: Any) -> None:
    """End a session without the last entry of its ledger, in which it would open its coins."""
    session.forget(Scope.RUN)
    session.ended = True
    session.commit()


@pytest.mark.parametrize("preset", ["masks", "unsafe_plaintext"])
def test_who_never_ends_its_ledger_is_named_and_the_others_are_judged(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, honest = "client-2", ClientSession.close
    monkeypatch.setattr(
        ClientSession,
        "close",
        lambda s, *facts: never_ends(s) if s.name == gone else honest(s, *facts),
    )
    chosen = policy(preset).changed(capture={"rounds": "all", "days": 1})
    facts: Any = {"algorithm": {"name": "fed_avg", "rounds": 1, "epochs": 2}}
    found = run(tmp_path / "run", chosen, **facts)
    assert found.verify().ok and f"opened: {gone}" in step(found)[1]
    given = material(found)
    assert gone not in {one.client for one in given.exposures} and len(given.exposures) == 3
    rows = {row.id: row for row in attack(given).rows if row.protected is not None}
    for id in ("A04", "A05", "A11"):
        assert rows[id].n_clients == CLIENTS - 1 and f"never opened: {gone}" in rows[id].reason
    # Its data are here, and its model is everybody's: nothing of A12 follows from its coins.
    assert rows["A12"].n_clients == CLIENTS and gone not in rows["A12"].reason


def test_what_is_left_for_an_unknown_client_is_what_it_can_have_said() -> None:
    chosen = Federation(config=config(), policy=policy("masks"))
    prepared = chosen.prepare()
    form = chosen.policy.admit(prepared.algorithm)
    (exchange,) = [e for e in form.exchanges if updates(e)]
    case: Any = SimpleNamespace(policy=chosen.policy, plan=prepared.plan)
    layout, (kind,) = summed(case, exchange)[0], updates(exchange)
    bound = next(c.grid.bound for c in layout.columns if c.grid is not None)
    size = prepared.task.size
    said = [{"delta": np.full(size, 0.1), "count": np.full(1, 5.0)} for _ in range(3)]

    def total(delta: float, count: float) -> dict[str, Any]:
        return {"delta": np.full(size, 0.3 + delta), "count": np.full(1, 15.0 + count)}

    agree(layout, said, total(0.0, 0.0), kind)
    agree(layout, said, total(0.9 * bound, 7.0), kind, 1)
    for lie, unknown in (((0.9 * bound, 7.0), 0), ((1.1 * bound, 7.0), 1), ((0.0, -1.0), 1)):
        with pytest.raises(EvidenceError, match="is not what left"):
            agree(layout, said, total(*lie), kind, unknown)


@pytest.mark.parametrize("dropped", ["2@1", ""])
def test_a_client_whose_updates_never_arrived_is_no_member_of_the_model(
    dropped: str, tmp_path: Path
) -> None:
    """By the ledgers: it trained, and nothing of it counted."""
    faults: Any = {"faults": {"drop": dropped}}
    small = {**BANKS, "partition": {"name": "iid_nodes", "clients": 5}}
    facts: Any = {"algorithm": {"name": "fed_avg", "rounds": 1, "epochs": 2}, "data": small}
    given = material(run(tmp_path / "run", policy("masks"), **facts, **faults))
    assert given.canaries is not None and len(given.canaries.coins) == 5
    gone = {"client-2"} if dropped else set()
    assert given.canaries.arrived == set(given.canaries.coins) - gone
    rows = [row for row in attack(given, ["A11"]).rows if row.payload == "P19"]
    shared = next(row for row in rows if "own" not in row.what)
    assert shared.n_clients == 5 - len(gone)
