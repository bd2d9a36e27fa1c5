"""``audit release``: only attacks that were answered let a model out, and somebody signs for it."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits.attacks._shared.models import AttackRow
from audits.bundle.statements import PAYLOAD_TYPE, RELEASE, open_statement
from audits.evidence.run_files import RunView
from audits.findings.gate import answers, withheld
from audits.findings.release import SITE, unanswered
from audits.report.build import build_report
from crypto.errors import NotCanonical
from protocols.errors import EvidenceError
from secure_fgl.store.bundles import load_key
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.release import check_statement, released
from tests.audits.attack_tools import BIASED, BLANK, LEAK, UNSURE, attacked, row
from tests.audits.forging import edit_last, forge, without_models
from tests.audits.toy_run import WEIGHTS, Toy, save
from tests.secure_fgl.cli_tools import invoke

NOTHING = {**BLANK, "payload": "P05", "reason": "no", "verdict": "NOT_TESTED"}
CRASHED = {**NOTHING, "verdict": "ERROR"}
ABSENT = {**NOTHING, "verdict": "NOT_APPLICABLE"}


def day(days: int) -> str:
    return (datetime.now(UTC).date() + timedelta(days=days)).isoformat()


def pem(path: Path) -> Path:
    kinds = (forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(*kinds))
    path.chmod(0o600)
    return path


def trust(key: Path) -> dict[str, str]:
    return {"auditor": load_key(key).public.raw.hex()}


@pytest.fixture
def view(toy: Toy) -> RunView:
    return without_models(toy)


def laid(view: RunView, folder: Path, *rows: AttackRow, **facts: Any) -> Path:
    found = attacked(view, *rows, **facts) if rows else view
    run = save(found, folder)
    if rows:
        (run / "attacks.json").write_bytes(found.attacks_text)
    return run


def waiving(folder: Path, rule: str, until: str) -> Path:
    path = folder / f"{rule}.json"
    entry = {"rule": rule, "owner": "M. Bloch", "reason": "no member is secret", "until": until}
    path.write_text(json.dumps([entry]))
    return path


def release(run: Path, *words: object, require: str = "A05") -> tuple[int, dict[str, Any]]:
    shown = invoke("audit", "release", run, "--require", require, *words, "--format", "json")
    return shown.exit_code, json.loads(shown.stdout) if shown.stdout else {}


@pytest.mark.parametrize(
    ("rows", "code", "waived"),
    [
        ([row()], 0, 0),
        ([row(**LEAK)], 3, 0),
        ([row(**UNSURE)], 3, 0),
        ([row(), row(**LEAK, what="other")], 3, 0),
        ([row(**LEAK, what="other"), row()], 3, 0),
        ([row(**LEAK), row()], 3, 0),  # two rows of one name: neither hides the other
        ([row(**BIASED)], 3, 3),
        ([row(**NOTHING)], 3, 3),
        ([row(**CRASHED)], 3, 3),
        ([row(**ABSENT)], 3, 3),
        ([row(), row(**{**ABSENT, "what": "rows", "payload": "P07"})], 0, 0),
        ([], 3, 3),
    ],
)
def test_only_a_pass_or_an_accepted_finding_lets_a_model_out(
    view: RunView, tmp_path: Path, rows: list[AttackRow], code: int, waived: int
) -> None:
    run = laid(view, tmp_path / "run", *rows)
    assert release(run)[0] == code
    verdicts = {one.verdict for one in rows} - {"PASS", "NOT_APPLICABLE"}
    rule = {"FAIL": "ATTACK"}.get(verdict := min(verdicts, default="NOT_TESTED"), verdict)
    name = f"{rule}_A05"
    assert release(run, "--waivers", waiving(tmp_path, name, day(30)))[0] == waived
    assert release(run, "--waivers", waiving(tmp_path, name, day(-1)))[0] == code


def test_a_question_that_an_attack_left_open_is_waived_by_name_and_one_that_was_not_run_is_not(
    view: RunView, tmp_path: Path
) -> None:
    open_one = row(**{**NOTHING, "what": "at one false alarm in a hundred"})
    accepted = waiving(tmp_path, "NOT_TESTED_A05", day(30))
    for name, judged in (("passed", row()), ("failed", row(**LEAK))):
        run = laid(view, tmp_path / name, judged, open_one)
        assert release(run)[0] == 3
        code, found = release(run, "--waivers", accepted)
        assert code == (0 if name == "passed" else 3)
        assert not any("one false alarm" in why for why in found["not_answered"])
    none = laid(view, tmp_path / "none", row(**NOTHING), open_one)
    code, found = release(none, "--waivers", accepted)
    assert code == 3 and all("no waiver can stand in" in why for why in found["not_answered"])


def test_the_rule_is_the_policy_s_with_other_settings(view: RunView) -> None:
    """Control: by the policy's own rule an attack that did not succeed is an answer."""
    report = build_report(attacked(view, row(**UNSURE)))
    found = answers(report, ["A05"])
    assert withheld(found) and not unanswered([("A05", found[0].verdict, "nobody")], SITE)


def test_a_smaller_margin_judges_anew_and_a_larger_one_does_not(
    view: RunView, tmp_path: Path
) -> None:
    run = laid(view, tmp_path / "run", row())
    assert release(run, "--margin", "0.5")[0] == 0
    code, found = release(run, "--margin", "0.02")
    assert code == 3 and found["attacks"][0]["verdict"] == "INCONCLUSIVE"
    # Nobody accepted that: the report has no such finding, so a waiver is about nothing.
    accepted = waiving(tmp_path, "INCONCLUSIVE_A05", day(30))
    assert release(run, "--margin", "0.02", "--waivers", accepted)[0] == 3
    # Somebody accepted that it was inconclusive; that it fails by another margin, nobody did.
    sure = {**UNSURE, "gap": "0.048 0.03 0.1", "protected": "0.55 0.53 0.6", "n_pos": 16}
    mild = laid(view, tmp_path / "mild", row(**sure))
    assert release(mild)[0] == 3 and release(mild, "--waivers", accepted)[0] == 0
    code, found = release(mild, "--margin", "0.02", "--waivers", accepted)
    assert (code, found["attacks"][0]["verdict"]) == (3, "FAIL")
    for bad in ("0", "0.0", "-1", "1e-3", "nan", "2"):
        assert release(run, "--margin", bad)[0] == 2


def test_what_another_program_or_another_run_found_lets_nothing_out(
    view: RunView, tmp_path: Path
) -> None:
    for n, other in enumerate(({"heads_digest": "ab" * 32}, {"code_digest": "ab" * 32})):
        assert release(laid(view, tmp_path / str(n), row(), **other))[0] == 3
    assert release(laid(view, tmp_path / "run", row()), require="A99")[0] == 2
    assert release(tmp_path / "run", require="A05,A04")[0] == 3


def test_broken_evidence_and_drift_let_nothing_out(toy: Toy, view: RunView, tmp_path: Path) -> None:
    key, out = pem(tmp_path / "key.pem"), tmp_path / "r.json"
    stray = forge(toy, view, "client-1", edit_last("release", item="step.up.MORE"))
    run = laid(stray, tmp_path / "stray", row())
    assert release(run, "--out", out, "--key", key)[0] in (5, 6) and not out.exists()
    run = laid(view, tmp_path / "cut", row())
    ledger = run / "ledger" / "client-1.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-10])
    assert release(run, "--out", out, "--key", key)[0] == 5 and not out.exists()


def test_the_statement_says_who_accepted_what_and_binds_run_and_ledgers(
    view: RunView, other: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, key = laid(view, tmp_path / "run", row(**LEAK)), pem(tmp_path / "key.pem")
    accepted = waiving(tmp_path, "ATTACK_A05", day(30))
    words = ("--waivers", accepted, "--key", key, "--out")
    assert release(run, *words[2:], tmp_path / "none.json")[0] == 3
    assert not (tmp_path / "none.json").exists()
    out = tmp_path / "release.json"
    assert release(run, *words, out)[0] == 0
    assert release(run, *words, tmp_path / "again.json")[0] == 0
    assert out.read_bytes() == (tmp_path / "again.json").read_bytes()
    assert release(run, *words, out)[0] == 2  # it is evidence
    with pytest.raises(NotCanonical):
        open_statement(out.read_bytes())  # no statement of a bundle's
    one = open_statement(out.read_bytes(), (RELEASE,))
    (told,) = one.predicate["attacks"]
    assert told["verdict"] == "FAIL" and told["waiver"]["owner"] == "M. Bloch"
    assert one.predicate["run"] == Run(run).name and one.predicate["day"] == day(0)
    trusted = trust(key)
    check_statement(Run(run), out, trusted)
    stranger = trust(pem(tmp_path / "other.pem"))
    elsewhere = save(other.view(reports=False), tmp_path / "other")
    shorter = laid(view, tmp_path / "shorter", row())
    ledger = shorter / "ledger" / "client-1.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    forged = tmp_path / "forged.json"
    forged.write_bytes(out.read_bytes().replace(b'"payload":"', b'"payload":"AAAA', 1))
    for place, file, keys in (
        (run, out, stranger),
        (elsewhere, out, trusted),
        (shorter, out, trusted),
        (run, forged, trusted),
    ):
        with pytest.raises(EvidenceError, match="release"):
            check_statement(Run(place), file, keys)
    assert one.envelope.payload_type == PAYLOAD_TYPE
    for later, over in ((30, False), (31, True)):  # the waiver's last day, and the next one
        until = datetime.now(UTC).date() + timedelta(days=later)
        monkeypatch.setattr("secure_fgl.store.sides.release.today", lambda day=until: day)
        with pytest.raises(EvidenceError, match="is over") if over else nullcontext():
            check_statement(Run(run), out, trusted)


def test_its_subjects_are_the_models_of_the_ledgers_and_their_files(
    toy: Toy, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.npz").write_bytes(b"best")
    key = load_key(pem(tmp_path / "key.pem"))
    data = released(toy.view(reports=False), Folder(tmp_path), {"run": "x"}, key)
    best, final = open_statement(data, (RELEASE,)).subjects
    assert best["digest"]["secureFglWeights"] == WEIGHTS["best"]
    assert best["digest"]["sha256"] == hashlib.sha256(b"best").hexdigest()
    assert final["digest"] == {"secureFglWeights": WEIGHTS["final"]}
