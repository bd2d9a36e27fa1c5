"""Approvals: a run whose policy names approvers begins with all their signatures, or not at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from audits.checks.parties import PlanApproval, approvals_text, read_approvals
from audits.evidence.verify import verify
from audits.report.build import build_report
from crypto.signing import SigningKey
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.cli._shared.inputs import load_plan
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.run.plan_approvals import approved
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import RunFolder
from tests.secure_fgl.cli_tools import invoke

SETTINGS = ("algorithm.rounds=2", "model.hidden=8", "evaluation.references=[]")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "banks.yaml"
DAY = "2026-01-01T00:00:00Z"


def settings(policy: Path) -> list[str]:
    return [word for one in (*SETTINGS, f"policy={policy}") for word in ("--set", one)]


def a_key(path: Path) -> str:
    """Write a key; return its public half as `approve` prints it."""
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(*form))
    path.chmod(0o600)
    return invoke("approve", "--key", path).stdout.strip()


def a_policy(path: Path, approvers: dict[str, str]) -> Path:
    document = {**PrivacyPolicy.preset("masks").document(), "approvals": approvers}
    path.write_text(yaml.safe_dump({**document, "name": "approved"}))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, a policy that names both, its plan, and an approval of each."""
    folder = tmp_path_factory.mktemp("approve")
    keys = {name: a_key(folder / f"{name}.pem") for name in ("dpo", "owner")}
    policy = a_policy(folder / "policy.yaml", keys)
    shown = invoke("plan", EXAMPLE, *settings(policy), "--out", folder / "plan.json")
    assert shown.exit_code == 0, shown.stderr
    for name in keys:
        assert approve(folder, name).exit_code == 0
    return folder


def approve(folder: Path, name: str, *more: object, plan: str = "plan.json", key: str = ""):
    out = folder / f"{name}.approval.json"
    words = ("approve", folder / plan, "--as", name, "--key", folder / f"{key or name}.pem")
    return invoke(*words, *(() if "--out" in more else ("--out", out)), *more)


def run(folder: Path, out: Path, *files: Path, policy: str = "policy.yaml"):
    given = [word for file in files for word in ("--approvals", file)]
    return invoke("run", EXAMPLE, *settings(folder / policy), "--out", out, *given)


@pytest.fixture(scope="module")
def done(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("approved") / "run"
    shown = run(place, out, place / "dpo.approval.json", place / "owner.approval.json")
    assert shown.exit_code == 0, shown.stderr
    return out


def test_a_run_that_all_approved_says_so_and_so_does_its_bundle(done: Path) -> None:
    step = next(s for s in verify(Run(done).view()).steps if s.name == "approvals")
    assert str(step.status) == "OK" and "dpo on" in step.detail and "owner on" in step.detail
    last = build_report(Run(done).view()).verdict_strip[-1]
    assert (last.question, last.state) == ("Who approved this?", "OK")
    assert last.answer.startswith("Approved by dpo on")
    assert invoke("audit", "bundle", done, "--out", done.parent / "b.zip").exit_code == 0
    shown = invoke("audit", "verify", done.parent / "b.zip")
    assert shown.exit_code == 0 and "owner on" in shown.stdout


def test_nothing_begins_without_an_approval_or_with_a_stranger_s(
    place: Path, tmp_path: Path
) -> None:
    dpo, owner = place / "dpo.approval.json", place / "owner.approval.json"
    for files, why in (((), "dpo did not approve"), ((dpo,), "owner did not approve")):
        shown = run(place, tmp_path / "run", *files)
        assert shown.exit_code == 2 and why in shown.stderr
    stranger = tmp_path / "x.json"
    stranger.write_bytes(approvals_text([PlanApproval.of(SigningKey.generate(), "x", "0", DAY)]))
    other = replace(
        read_approvals(stranger.read_bytes())[0], plan=read_approvals(dpo.read_bytes())[0].plan
    )
    stranger.write_bytes(approvals_text([other]))
    assert run(place, tmp_path / "run", dpo, owner, stranger).exit_code == 2
    a_key(place / "thief.pem")
    forged = tmp_path / "forged.json"
    assert approve(place, "owner", "--out", forged, key="thief").exit_code == 0
    shown = run(place, tmp_path / "run", dpo, forged)
    assert shown.exit_code == 2 and "not signed with the key" in shown.stderr
    assert run(place, tmp_path / "run", dpo, dpo, owner).exit_code == 2
    assert not (tmp_path / "run").exists()


def test_an_approval_of_another_plan_is_drift(place: Path, tmp_path: Path) -> None:
    other = a_policy(
        place / "other.yaml", yaml.safe_load((place / "policy.yaml").read_text())["approvals"]
    )
    words = (*settings(other), "--set", "algorithm.rounds=3", "--out", place / "more.json")
    assert invoke("plan", EXAMPLE, *words).exit_code == 0
    stale = tmp_path / "owner.json"
    assert approve(place, "owner", "--out", stale, plan="more.json").exit_code == 0
    shown = run(place, tmp_path / "run", place / "dpo.approval.json", stale)
    assert shown.exit_code == 6 and "owner approved another plan" in shown.stderr
    assert not (tmp_path / "run").exists()


def test_a_day_that_is_over_is_neither_signed_nor_taken(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, now = tmp_path / "short.json", "secure_fgl.run.clock.clock"
    monkeypatch.setattr(now, lambda: "2030-05-05T12:00:00Z")
    for day in ("2030-05-04", "2030-13-01", "20300506", "soon"):
        assert approve(place, "owner", "--until", day, "--out", short).exit_code == 2
    assert approve(place, "owner", "--until", "2030-05-05", "--out", short).exit_code == 0
    monkeypatch.setattr("secure_fgl.run.plan_approvals.clock", lambda: "2030-05-06T00:00:00Z")
    shown = run(place, tmp_path / "run", place / "dpo.approval.json", short)
    assert shown.exit_code == 2 and "had expired" in shown.stderr


def test_a_run_that_goes_on_is_held_to_what_lies_with_it(done: Path, place: Path) -> None:
    policy, kept = PrivacyPolicy.load(place / "policy.yaml"), RunFolder.__new__(RunFolder)
    kept.path, kept._folder = done, Folder(done)
    plan = load_plan(place / "plan.json")
    assert approved(policy, plan, (), kept, True) == (done / "approvals.json").read_bytes()
    with pytest.raises(PlanDrift, match="another plan"):
        approved(policy, plan.model_copy(update={"rounds": 3}), (), kept, True)
    with pytest.raises(UsageError, match="did not approve"):  # control: nothing lies there
        approved(policy, plan, (), kept, False)


def test_newer_approvals_let_a_run_go_on_and_leave_those_that_it_began_with(
    done: Path, place: Path, tmp_path: Path
) -> None:
    """Else a run that goes on with them would read as one that began before it was approved."""
    policy, kept = PrivacyPolicy.load(place / "policy.yaml"), RunFolder.__new__(RunFolder)
    kept.path, kept._folder = done, Folder(done)
    plan, newer = load_plan(place / "plan.json"), tmp_path / "owner.json"
    assert approve(place, "owner", "--out", newer).exit_code == 0
    dpo = place / "dpo.approval.json"
    given = [read_approvals(file.read_bytes())[0] for file in (dpo, newer)]
    assert "after the run had begun" in changed(done, tmp_path / "newer", *given)  # the control
    began = (done / "approvals.json").read_bytes()
    assert approved(policy, plan, (dpo, newer), kept, True) == began != approvals_text(given)
    with pytest.raises(UsageError, match="owner did not approve"):
        approved(policy, plan, (dpo,), kept, True)


def test_a_policy_that_names_nobody_takes_no_approvals(place: Path, tmp_path: Path) -> None:
    words = ("run", EXAMPLE, "--set", "policy=masks", "--out", tmp_path / "run")
    shown = invoke(*words, "--approvals", place / "dpo.approval.json")
    assert shown.exit_code == 2 and "asks for no approvals" in shown.stderr


def changed(done: Path, to: Path, *approvals: PlanApproval) -> str:
    """Return what `audit verify` says at `approvals` of the run with other ones beside it."""
    shutil.copytree(done, to)
    file = to / "approvals.json"
    file.unlink()
    if approvals:
        file.write_bytes(approvals_text(approvals))
        file.chmod(0o600)
    outcome = verify(Run(to).view())
    step = next(s for s in outcome.steps if s.name == "approvals")
    assert str(step.status) == "FAIL" and not outcome.ok
    return step.detail


def test_verify_sees_approvals_that_are_gone_forged_late_or_of_another_plan(
    done: Path, tmp_path: Path
) -> None:
    dpo, owner = read_approvals((done / "approvals.json").read_bytes())
    key = SigningKey.generate()
    assert "did not approve" in changed(done, tmp_path / "none")
    assert "did not approve" in changed(done, tmp_path / "one", dpo)
    later = PlanApproval.of(key, "owner", owner.plan, "2999-01-01T00:00:00Z")
    assert "not signed with the key" in changed(done, tmp_path / "key", dpo, later)
    swapped = replace(owner, until="2999-01-01")
    assert "not signed with the key" in changed(done, tmp_path / "until", dpo, swapped)
    renamed = replace(owner, name="dpo")
    assert "owner did not approve" in changed(done, tmp_path / "name", renamed)
    with_charter = replace(Run(done).view(), charter_text=b"{}")
    step = next(s for s in verify(with_charter).steps if s.name == "approvals")
    assert str(step.status) == "FAIL" and "a simulation has no charter" in step.detail


def test_a_late_or_expired_approval_fails_though_its_signature_is_right() -> None:
    from audits.checks.parties import hold

    key = SigningKey.generate()
    names = {"dpo": key.public.raw.hex()}
    good = PlanApproval.of(key, "dpo", "ab", DAY, "2026-01-02")
    hold([good], names, "ab", "2026-01-02T23:59:59Z")  # control
    for began, plan, why in (
        ("2025-12-31T23:59:59Z", "ab", "after the run had begun"),
        ("2026-01-03T00:00:00Z", "ab", "expired"),
        ("2026-01-02T00:00:00Z", "cd", "another plan"),
    ):
        with pytest.raises(EvidenceError, match=why):
            hold([good], names, plan, began)


@pytest.mark.parametrize(
    "spoilt",
    [b"", b"[]", b'{"approvals":[1]}', b'{"approvals":[{}]}', b'{"approvals":{}}', b"\xff" * 9],
)
def test_what_is_no_list_of_approvals_is_refused(spoilt: bytes) -> None:
    with pytest.raises(EvidenceError, match="no list of approvals"):
        read_approvals(spoilt)
    good = PlanApproval.of(SigningKey.generate(), "dpo", "ab", DAY)
    text = approvals_text([good])
    assert read_approvals(text) == (good,)  # control
    changes = ({"made": "yesterday"}, {"until": "2026-1-1"}, {"made": DAY + "\n"})
    for wrong in (replace(good, **change) for change in changes):
        with pytest.raises(EvidenceError):
            read_approvals(approvals_text([wrong]))
    with pytest.raises(EvidenceError):
        read_approvals(approvals_text([good, good]))


def test_a_policy_says_who_approves_and_refuses_one_key_twice() -> None:
    plain = PrivacyPolicy.preset("masks")
    assert plain.document()["approvals"] == {}
    key = SigningKey.generate().public.raw.hex()
    named = PrivacyPolicy.model_validate({**plain.document(), "approvals": {"dpo": key}})
    assert named.digest != plain.digest
    for wrong in ({"dpo": key, "owner": key}, {"DPO": key}, {"dpo": key.upper()}, {"dpo": "ab"}):
        with pytest.raises(ValueError, match="approvals"):
            PrivacyPolicy.model_validate({**plain.document(), "approvals": wrong})
