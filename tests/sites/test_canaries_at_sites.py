"""Canaries between organisations: each site's own coins, committed, opened, and attacked with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.attacks import AttackReport
from audits.checks.canaries import secrets_of
from audits.elsewhere.sites import figures_of, joined
from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from protocols.evidence.captures import Canaries, Capture, new_secret
from protocols.evidence.ledger import read_lines
from protocols.policy.policy import Audit, PrivacyPolicy
from protocols.roles.client import ClientSession
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.attack_inputs import models
from secure_fgl.attack_inputs.materials import material
from secure_fgl.elsewhere.at_site import material_of_site
from secure_fgl.sites.process import conduct, open_process
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files
from tests import forked
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble, banks, side
from tests.sites.test_own_models import Direct

POLICY = PrivacyPolicy.preset("masks").model_copy(
    update={
        "name": "planted",
        "canaries": Canaries(records=60),
        "capture": Capture(rounds="all", days=30),
        "audit": Audit(share=("A05", "A11")),
    }
)
CLIENTS = tuple(f"client-{n}" for n in range(1, 6))
FIRST, SECOND, LIAR, SILENT = CLIENTS[:4]
pytestmark = pytest.mark.usefixtures("_keys")


@dataclass
class Played:
    """A run of five clients with canaries, over."""

    parties: Parties

    def at(self, name: str) -> Path:
        """Return a party's folder."""
        return self.parties.folders[name]

    def handed(self, into: Path) -> dict[str, Path]:
        """Return what all parties hand over, by party."""
        found = {}
        for place in self.parties.folders.values():
            found[place.name] = into / f"{place.name}.zip"
            said = invoke("site", "hand-over", place, "--out", found[place.name])
            assert said.exit_code in (0, 5), said.stderr
        return found


@pytest.fixture(scope="module")
def _keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        forked.use(patch)
        patch.setenv("SECURE_FGL_STATE", str(tmp_path_factory.mktemp("state")))
        yield


def play(base: Path, *, away: str = "") -> Played:
    """Play a run; `away`: a client whose process signs its head and never ends its ledger."""
    (base / "policy.yaml").write_text(json.dumps(POLICY.document()))
    config = banks(rounds=2).model_copy(update={"policy": str(base / "policy.yaml")})
    parties = assemble(config, base)
    there = {name: open_process(parties.kit(name)) for name in parties.others}
    conduct(open_process(parties.kit(AGGREGATOR_NAME)), Direct(there))
    for name, process in there.items():
        if name == away:
            process.sign_head()
            process.files.close()
        else:
            process.close()
    return Played(parties)


@pytest.fixture(scope="module")
def played(_keys: None, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="module")
def cut_short(_keys: None, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("silent"), away=SILENT)


def step(run: Run) -> tuple[str, str]:
    """Return how the step ended, and what it says."""
    (one,) = [s for s in verify(run.view()).steps if s.name == "canaries"]
    return one.status, one.detail


def test_a_charter_shows_them_before_anybody_signs(played: Played, tmp_path: Path) -> None:
    file = tmp_path / "charter.json"
    file.write_bytes(played.parties.charter.encode())
    shown = invoke("charter", "show", file)
    assert shown.exit_code == 0, shown.stderr
    said = " ".join(shown.stdout.split())
    assert "makes up 60" in said and "canaries" in said.lower()
    told = json.loads(invoke("charter", "show", file, "--format", "json").stdout)
    assert told["policy"]["canaries"] == {"records": 60, "seed": "heads"}


def test_each_site_commits_to_its_own_coins_first_and_opens_them_last(
    played: Played, tmp_path: Path
) -> None:
    for name in CLIENTS:
        ledger = (side(played.at(name)) / "ledger" / f"{name}.jsonl").read_bytes()
        first, *middle, last = (entry for entry, _ in read_lines(ledger))
        assert first["canaries"] != last["canaries"] and last["kind"] == "close"
        assert not any("canaries" in entry for entry in middle)
        # Coins are in no other party's files before a site hands its ledger over.
        for other in played.parties.folders.values():
            if other.name != name:
                files = (f for f in side(other).rglob("*") if f.is_file())
                assert not any(last["canaries"].encode() in f.read_bytes() for f in files)
        status, said = step(Run(played.at(name)))
        assert status == Status.OK and "1 of 1 client" in said
    status, said = step(Run(played.at("aggregator")))
    assert status == Status.NOT_CHECKED and "clients', and only their ledgers" in said
    gather_files(list(played.handed(tmp_path).values()), tmp_path / "run")
    status, said = step(Run(tmp_path / "run"))
    assert status == Status.OK and "5 of 5 clients" in said and "not closed" not in said


def test_a_site_attacks_its_own_canaries_and_its_figures_are_judged_over_sites(
    played: Played,
) -> None:
    found = {}
    for name in (FIRST, SECOND):
        said = invoke("audit", "attack", played.at(name), "--fail-on", "never", "--format", "json")
        assert said.exit_code == 0, said.stderr
        text = (side(played.at(name)) / "attacks.json").read_bytes()
        found[name] = AttackReport.parse(text)
        rows = [r for r in found[name].rows if r.id == "A11" and r.protected is not None]
        assert {row.payload for row in rows} == {"P05", "P19"}
        assert {(row.n_clients, row.verdict) for row in rows} <= {
            (1, "INCONCLUSIVE"),
            (1, "INVALID"),
        }
    figures = {name: figures_of(one, name, POLICY.audit.share) for name, one in found.items()}  # type: ignore[union-attr]
    rows = [row for row in joined(figures, CLIENTS).rows if row.id == "A11"]
    assert rows and {row.n_clients for row in rows} == {2}
    assert {row.payload for row in rows} == {"P05", "P19"}


def test_what_a_site_computes_again_has_its_canaries_and_drawn_ones_have_none(
    played: Played,
) -> None:
    given = material_of_site(Run(played.at(FIRST)), profile="default")
    assert given.canaries is not None and set(given.canaries.coins) == {FIRST}
    assert FIRST not in given.canaries.controls and len(given.canaries.controls) == 4
    case = Case(Run(played.at(FIRST)).view())
    assert set(secrets_of(case)) == {FIRST}
    own = [one for one in given.exposures if one.client == FIRST]
    assert {one.round for one in own} == {1, 2} and all(one.seen is not None for one in own)


def test_what_left_the_isolated_processes_was_trained_on_canaries(played: Played) -> None:
    """The total that clients were given is of sites with canaries, and of none without."""
    with_them, bare, seen = [], [], []
    for name in CLIENTS:
        given = material_of_site(Run(played.at(name)))
        own = next(one for one in given.exposures if one.client == name)
        with_them.append((own.raw["delta"], own.raw["count"]))
        seen.append(own.seen["delta"])  # type: ignore[index]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(models, "planted", lambda data, *facts, **named: data)
            without = material_of_site(Run(played.at(name)))
        own = next(one for one in without.exposures if one.client == name)
        bare.append((own.raw["delta"], own.raw["count"]))

    def mean(said: list[Any]) -> Any:
        return sum(delta for delta, _ in said) / sum(count for _, count in said)

    assert np.abs(mean(with_them) - seen[0]).max() < 1e-4
    assert np.abs(mean(bare) - seen[0]).max() > 1e-3  # the control
    counts = ([float(count) for _, count in said] for said in (with_them, bare))
    assert next(counts) == next(counts)  # and no number that left counts them


def test_a_site_that_opens_other_coins_is_named_by_its_own_side_and_by_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ClientSession.opened
    lie = {"canaries": new_secret().hex()}
    monkeypatch.setattr(ClientSession, "opened", lambda s: lie if s.name == LIAR else honest(s))
    found = play(tmp_path)
    status, said = step(Run(found.at(LIAR)))
    assert status == Status.FAIL and f"{LIAR} opens other coins" in said
    assert step(Run(found.at(FIRST)))[0] == Status.OK  # the control
    gather_files(list(found.handed(tmp_path).values()), tmp_path / "run")
    status, said = step(Run(tmp_path / "run"))
    assert status == Status.FAIL and said.count("client-") == 1 and LIAR in said
    with pytest.raises(EvidenceError, match=LIAR):
        material(Run(tmp_path / "run"))


def test_two_sites_with_one_secret_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = new_secret()
    drawn = iter([new_secret(), same, same, new_secret(), new_secret()])
    monkeypatch.setattr("protocols.roles.client.new_secret", lambda: next(drawn))
    found = play(tmp_path)
    gather_files(list(found.handed(tmp_path).values()), tmp_path / "run")
    status, said = step(Run(tmp_path / "run"))
    assert status == Status.FAIL and f"{SECOND} and {LIAR} have one secret" in said
    assert step(Run(found.at(SECOND)))[0] == Status.OK  # one side alone cannot see it


def test_a_site_that_never_ended_its_ledger_is_named_and_the_others_stand(
    cut_short: Played, tmp_path: Path
) -> None:
    gather_files(list(cut_short.handed(tmp_path).values()), tmp_path / "run")
    run = Run(tmp_path / "run")
    assert run.verify().ok
    status, said = step(run)
    assert status == Status.OK and "4 of 5 clients" in said and f"opened: {SILENT}" in said


def test_the_process_of_a_site_that_was_killed_goes_on_with_its_own_coins(
    tmp_path: Path,
) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY.document()))
    config = banks().model_copy(update={"policy": str(tmp_path / "policy.yaml")})
    parties = assemble(config, tmp_path)
    site = next(s for s, folder in parties.folders.items() if folder.name == FIRST)
    before = open_process(parties.kit(site))
    secret = before.session.canary_secret  # type: ignore[attr-defined]
    before.files.close()  # its process is gone, and with it the worker that had the canaries
    after = open_process(parties.kit(site))
    with after.files:
        assert after.session.canary_secret == secret and len(secret) == 32  # type: ignore[attr-defined]
        assert after.session.planted  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / FIRST)
