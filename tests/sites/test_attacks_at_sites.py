"""Attacks where the truth lies: at one site of a run between organisations, and over sites."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from audits.attacks import AttackReport, heads_digest
from audits.elsewhere.sites import SiteFigures, figures_of, joined, read_figures
from audits.evidence.steps import Case
from audits.report.build import build_report
from protocols.errors import EvidenceError, OtherVersion
from protocols.evidence.captures import Capture
from protocols.plan.learns import HANDED_ON
from protocols.policy.policy import Audit, PrivacyPolicy
from protocols.versions import SITE_FIGURES
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.party import load_identity
from secure_fgl.elsewhere.at_site import material_of_site
from secure_fgl.errors import UsageError
from secure_fgl.store import captures
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, handed_on
from tests import forked
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble, banks, side
from tests.sites.test_own_models import play

SHARED = PrivacyPolicy.preset("masks").model_copy(
    update={
        "name": "shared",
        "capture": Capture(rounds="all", days=30),
        "audit": Audit(share=("A04", "A05")),
    }
)
FIRST, SECOND, LAST = "client-1", "client-2", "client-3"
pytestmark = pytest.mark.usefixtures("_keys")


@dataclass
class Played:
    """A run, after the attacks at two of its five sites."""

    parties: Parties
    state: Path

    def at(self, name: str) -> Path:
        """Return a party's folder."""
        return self.parties.folders[name]

    def found(self, name: str) -> AttackReport:
        """Return what the attacks at a site found."""
        return AttackReport.parse((side(self.at(name)) / "attacks.json").read_bytes())


@pytest.fixture(scope="module")
def _keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    state = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        forked.use(patch)
        patch.setenv("SECURE_FGL_STATE", str(state))
        yield state


@pytest.fixture(scope="module")
def played(_keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Played:
    base = tmp_path_factory.mktemp("sites")
    (base / "policy.yaml").write_text(json.dumps(SHARED.document()))
    config = banks(rounds=2).model_copy(update={"policy": str(base / "policy.yaml")})
    parties = assemble(config, base)
    play(parties)
    made = Played(parties, _keys)
    for name in (FIRST, SECOND):
        said = invoke("audit", "attack", made.at(name), "--fail-on", "never", "--format", "json")
        assert said.exit_code == 0, said.stderr
    return made


@pytest.fixture
def given(played: Played, tmp_path: Path) -> dict[str, Path]:
    """What all parties handed over, by party."""
    files = {}
    for place in played.parties.folders.values():
        files[place.name] = tmp_path / f"{place.name}.zip"
        said = invoke("site", "hand-over", place, "--out", files[place.name])
        assert said.exit_code == 0, said.stderr
    return files


def test_a_site_measures_its_own_client_and_says_what_it_cannot(played: Played) -> None:
    found = played.found(FIRST)
    rows = {row.id: row for row in found.rows if row.protected is not None}
    assert {"A04", "A05", "A12"} <= set(rows) and all(r.n_clients == 1 for r in rows.values())
    assert {row.verdict for row in rows.values()} <= {"INCONCLUSIVE", "INVALID"}  # of one client
    assert rows["A05"].payload == "P05" and "drawn from this site's" in rows["A05"].reason
    several = next(row for row in found.rows if row.id == "A09")
    assert several.verdict == "NOT_TESTED" and "all 5 clients" in several.reason
    assert {row.verdict for row in found.rows if row.id == "A02"} == {"NOT_APPLICABLE"}
    # Bound to the head of this client's own ledger, and read back into its own report.
    case = Case(Run(played.at(FIRST)).view())
    assert found.heads_digest == heads_digest(case.ledger_index, FIRST)
    report = build_report(case.view)
    assert report.tried.used and {r.id for r in report.attacks} == {r.id for r in found.rows}
    assert any("A04, A05" in text for text in case.plan.warnings)
    assert HANDED_ON.format("A04, A05") in case.plan.warnings


def test_a_site_looks_at_its_own_data_and_captures_alone(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' captures are not opened, though all keys of this test lie in one tree of folders."""
    opened: list[str] = []
    real = captures.Captures.open

    def seen(self: captures.Captures, party: str, recorded: Any) -> Any:
        opened.append(party)
        return real(self, party, recorded)

    monkeypatch.setattr(captures.Captures, "open", seen)
    material = material_of_site(Run(played.at(LAST)), profile="default")
    assert set(opened) == {LAST} and material.units == {LAST}
    own = [one for one in material.exposures if one.client == LAST]
    assert {one.round for one in own} == {1, 2}  # the last one from the model that it was left with
    for one in own:
        mean = {o.client: o for o in material.exposures if o.round == one.round}
        assert one.seen is not None and one.cohort == 5 and len(mean) == 5
    # Client-1 is drawn here: its own records are other ones, and are at its own site alone.
    there = {one.client: one for one in material_of_site(Run(played.at(FIRST))).exposures}
    drawn = next(one for one in material.exposures if one.client == FIRST)
    real = {row.tobytes() for row in there[FIRST].truth.members}  # type: ignore[union-attr]
    assert real and not real & {row.tobytes() for row in drawn.truth.members}  # type: ignore[union-attr]


def test_the_total_follows_from_the_models_that_a_client_was_given(played: Played) -> None:
    """The control: what one site calls the total is the mean of what all five clients said."""
    import numpy as np

    said = []
    for place in played.parties.folders.values():
        if place.name != "aggregator":
            material = material_of_site(Run(place))
            said.append(next(one for one in material.exposures if one.client == place.name))
    whole = sum(one.raw["delta"] for one in said) / sum(one.raw["count"] for one in said)
    for one in said:
        assert one.seen is not None
        assert np.abs(one.seen["delta"] - whole).max() < 1e-4
        alone = one.raw["delta"] / one.raw["count"]
        assert np.abs(one.seen["delta"] - alone).max() > 1e-3  # its own change is another one


def test_the_aggregator_has_no_truth_to_attack(played: Played) -> None:
    place = played.parties.folders[AGGREGATOR_NAME]
    with pytest.raises(UsageError, match="no data of its own"):
        material_of_site(Run(place))


def test_no_figure_leaves_but_what_the_policy_or_the_site_says(
    played: Played, given: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    gather_files([given[FIRST]], run)
    told = SiteFigures.model_validate_json((run / "attacks" / f"{FIRST}.json").read_bytes())
    assert {row.id for row in told.attacks.rows} == {"A04", "A05"}
    assert "A12" in told.withheld and not told.attacks.not_tested and not told.attacks.claims
    # A site that ran nothing hands on nothing, and needs no key for it.
    gather_files([given[LAST]], tmp_path / "last")
    assert not (tmp_path / "last" / "attacks").exists()
    assert handed_on(played.at(LAST), lambda: pytest.fail("no key is needed")).data == b""
    # With --yes all figures go.
    out = tmp_path / "all.zip"
    said = invoke("site", "hand-over", played.at(FIRST), "--out", out, "--yes", "--format", "json")
    assert said.exit_code == 0 and "A12" in json.loads(said.stdout)["figures"]
    gather_files([out], tmp_path / "whole")
    everything = (tmp_path / "whole" / "attacks" / f"{FIRST}.json").read_bytes()
    assert not SiteFigures.model_validate_json(everything).withheld


def test_without_a_word_in_the_policy_every_figure_stays(played: Played, tmp_path: Path) -> None:
    """The control: it is the policy's word, and nothing else, that lets figures go."""
    case = Case(Run(played.at(FIRST)).view())
    silent = case.policy.model_copy(update={"audit": None})
    assert silent.digest != case.policy.digest
    none = figures_of(played.found(FIRST), FIRST, ())
    assert not none.attacks.rows and {"A04", "A05"} <= set(none.withheld)


def test_rows_are_judged_over_sites_and_who_sent_none_is_named(
    played: Played, given: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    said = invoke("audit", "gather", *given.values(), "--out", run)
    assert said.exit_code == 0, said.stderr
    shown = invoke("audit", "report", run, "--fail-on", "never")
    assert shown.exit_code == 0, shown.stderr
    found = Run(run).leakage().at_sites
    assert found is not None and {one.party for one in found.handed} == {FIRST, SECOND}
    assert found.missing == ("client-3", "client-4", "client-5") and not found.other_version
    assert "running the attacks at that site again" in found.note
    rows = [row for row in found.rows if row.id == "A05"]
    assert rows and all(row.n_clients == 2 for row in rows)
    # A04's second score is asked only where a site's own prior is a strong one.
    asked = {row.n_clients for row in found.rows if row.id == "A04"}
    assert asked and asked <= {1, 2}
    ours = [
        next(r for r in played.found(name).rows if (r.id, r.what) == ("A05", rows[0].what))
        for name in (FIRST, SECOND)
    ]
    values = [float(r.protected.value) for r in ours if r.protected is not None]
    assert rows[0].protected is not None
    assert abs(float(rows[0].protected.value) - sum(values) / 2) < 2e-4
    page = (run / "report" / "report.md").read_text().replace("\\", "")
    assert "### At sites" in page and "client-3: sent none" in page
    assert "client-3: sent none" in (run / "report" / "report.html").read_text()
    assert Run(run).verify().ok


def test_figures_of_another_run_ledger_or_hand_are_refused(
    played: Played, given: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    gather_files(list(given.values()), run)
    case, key = Case(Run(run).view()), load_identity(played.at(FIRST)).signing
    good = figures_of(played.found(FIRST), FIRST, ("A05",))
    assert read_figures(good.signed_by(key).text(), case, FIRST)  # the control

    def changed(**said: Any) -> SiteFigures:
        return good.model_copy(update={"attacks": good.attacks.model_copy(update=said)})

    theirs = load_identity(played.at(SECOND)).signing
    row = next(r for r in good.attacks.rows if r.protected is not None)
    cleared = {"verdict": "PASS", "detectable": "0.1"}
    for wrong, why in (
        (good, "not signed by"),
        (good.signed_by(theirs), "not signed by"),
        (changed(run="ab" * 16).signed_by(key), "another run or plan"),
        (changed(plan_digest="ab" * 32).signed_by(key), "another run or plan"),
        (changed(heads_digest="ab" * 32).signed_by(key), "another head"),
        (
            changed(rows=(row.model_copy(update=cleared),)).signed_by(key),
            "not what its",
        ),
        (good.model_copy(update={"party": SECOND}).signed_by(key), "of nobody"),
    ):
        with pytest.raises(EvidenceError, match=why):
            read_figures(wrong.text(), case, FIRST)
    text, version = good.signed_by(key).text(), SITE_FIGURES.version
    assert text.count(b'"version":%d,' % version) == 1
    for other in (version - 1, version + 1):
        with pytest.raises(OtherVersion):
            numbered = text.replace(b'"version":%d,' % version, b'"version":%d,' % other)
            read_figures(numbered, case, FIRST)
    # What lies in a gathered run is read again: a finding, and nothing of it is counted.
    (run / "attacks" / f"{FIRST}.json").write_bytes(changed(run="ab" * 16).signed_by(key).text())
    report = build_report(Run(run).view())
    assert "FIGURES_REFUSED" in {finding.rule for finding in report.findings}
    assert report.at_sites is not None and FIRST in report.at_sites.missing


def test_two_sites_that_disagree_on_the_run_are_not_gathered(
    played: Played, given: dict[str, Path], tmp_path: Path
) -> None:
    from audits.bundle.hand_over import hand_over

    key = load_identity(played.at(FIRST)).signing
    good = figures_of(played.found(FIRST), FIRST, ("A05",))
    other = good.attacks.model_copy(update={"run": "ab" * 16})
    forged = good.model_copy(update={"attacks": other}).signed_by(key)
    file = tmp_path / "forged.zip"
    file.write_bytes(hand_over(Run(played.at(FIRST)).view(), forged.text()))
    said = invoke("audit", "gather", file, given[SECOND], "--out", tmp_path / "run")
    assert said.exit_code == 5 and "another run" in " ".join(said.stderr.split())
    assert not (tmp_path / "run").exists()


def test_made_up_figures_that_agree_are_found_by_running_again_alone(played: Played) -> None:
    """A site that lies about its own data passes all checks; the report says what finds it."""
    case, key = Case(Run(played.at(FIRST)).view()), load_identity(played.at(FIRST)).signing
    good = figures_of(played.found(FIRST), FIRST, ("A05",))
    row = next(r for r in good.attacks.rows if r.protected is not None)
    assert row.protected is not None and row.prior is not None and row.gap is not None
    # It says that its message told nothing more than none does.
    gone = row.gap.model_copy(update={"value": "0"})
    assert row.null is not None and row.excess is not None
    left = Decimal(row.prior.value) - Decimal(row.null.value)
    more = row.excess.model_copy(update={"value": str(left)})
    nothing = {"protected": row.protected.model_copy(update={"value": row.prior.value})}
    lie = row.model_copy(update={**nothing, "gap": gone, "excess": more})
    made_up = good.attacks.model_copy(update={"rows": (lie,)})
    signed = good.model_copy(update={"attacks": made_up}).signed_by(key)
    told = joined({FIRST: read_figures(signed.text(), case, FIRST)}, case.plan.clients)
    assert "running the attacks at that site again" in told.note
    again = played.found(FIRST)  # which is what running again gives
    assert lie not in again.rows and row in again.rows


def test_sites_of_another_version_are_named_and_not_counted(played: Played) -> None:
    good = figures_of(played.found(FIRST), FIRST, ("A05",))
    other = figures_of(played.found(SECOND), SECOND, ("A05",))
    old = other.attacks.model_copy(update={"code_digest": "ab" * 32})
    told = joined({FIRST: good, SECOND: other.model_copy(update={"attacks": old})}, (FIRST, SECOND))
    assert told.other_version == (SECOND,) and {row.n_clients for row in told.rows} == {1}


def test_captures_whose_days_are_over_leave_what_needs_none(played: Played, tmp_path: Path) -> None:
    """The keys went by their day: it says so, and the model is still asked about."""
    home = tmp_path / LAST
    shutil.copytree(played.at(LAST), home)
    shutil.rmtree(home / "keys" / "captures")
    material = material_of_site(Run(home))
    assert not material.exposures and material.unread and "keys are not here" in material.missing
    said = invoke("audit", "attack", home, "--fail-on", "never", "--format", "json")
    assert said.exit_code == 0, said.stderr
    rows = {row["id"]: row["verdict"] for row in json.loads(said.stdout)["rows"]}
    assert (rows["A04"], rows["A05"]) == ("NOT_TESTED", "NOT_TESTED") and rows["A12"] != (
        "NOT_TESTED"
    )
