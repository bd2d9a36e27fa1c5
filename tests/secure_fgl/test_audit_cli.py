"""``audit report`` with baseline and waivers, ``diff``, ``explain``, ``export``: exit codes."""

from __future__ import annotations

import json
import shutil
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from audits.attacks._shared.models import Claim
from audits.report.build import build_report
from audits.report.models import Report
from crypto.signing import canonical
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.cli._shared import report_files as keeping
from secure_fgl.cli._shared.gate import FailOn, codes_of, ordered
from secure_fgl.store.finished_run import Run
from tests.audits.toy_run import Bus, save
from tests.secure_fgl.cli_tools import invoke

VERBS = ("report", "diff", "explain", "export", "verify", "account")


def _toy(folder: Path, policy: str) -> Path:
    """A run of one round that was stopped before its result: seconds less than a real one."""
    bus = Bus(PrivacyPolicy.preset(policy), 1)
    bus.play(1)
    return save(bus.finish(whole=False).view(reports=False), folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: _toy(folder / name, name) for name in ("he", "unsafe_plaintext")}


@pytest.fixture
def good(runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs["he"], tmp_path / "good"))


@pytest.fixture
def clear(runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs["unsafe_plaintext"], tmp_path / "clear"))


def today(days: int = 0) -> str:
    return (datetime.now(UTC).date() + timedelta(days=days)).isoformat()


def waivers(folder: Path, *entries: dict[str, str]) -> Path:
    path = folder / "accepted.json"
    base = {"owner": "M. Bloch", "reason": "known", "until": today(30)}
    path.write_text(json.dumps([{**base, **entry} for entry in entries]))
    return path


def told(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "report" / "report.json").read_text()))


def verified(run: Path) -> int:
    return invoke("audit", "verify", run).exit_code


def test_waivers_are_kept_shown_and_verified(good: Path, tmp_path: Path) -> None:
    file = waivers(tmp_path, {"rule": "NOT_TESTED"})
    failing = ("audit", "report", good, "--fail-on", "low")
    assert invoke(*failing).exit_code == 3
    rule = {f["rule"] for f in told(good)["findings"] if f["severity"] == "low"}
    file = waivers(tmp_path, *({"rule": name} for name in rule))
    shown = invoke(*failing, "--waivers", file)
    assert shown.exit_code == 0, shown.stderr
    assert "WAIVED" in shown.stderr and "M. Bloch" in shown.stderr
    assert (good / "waivers.json").is_file()
    kept = [f for f in told(good)["findings"] if f["waiver"]]
    assert kept and all(f["waiver"]["judged"] == today() for f in kept)
    assert verified(good) == 0
    file.unlink()  # the run has its own copy
    again = invoke(*failing)
    assert again.exit_code == 0 and "stays in force" in again.stderr
    assert invoke(*failing, "--no-waivers").exit_code == 3
    assert not (good / "waivers.json").exists()
    assert verified(good) == 0


def test_an_expired_waiver_counts_for_nothing_and_is_a_finding(good: Path, tmp_path: Path) -> None:
    file = waivers(tmp_path, {"rule": "NOT_TESTED", "until": today(-1)})
    words = ("audit", "report", good, "--waivers", file)
    assert invoke(*words, "--fail-on", "medium").exit_code == 3
    assert "WAIVER_EXPIRED" in {f["rule"] for f in told(good)["findings"]}
    assert verified(good) == 0


def test_a_kept_waiver_is_judged_anew_by_a_new_report(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = waivers(tmp_path, {"rule": "SIMULATION", "until": today(1)})
    assert invoke("audit", "report", good, "--waivers", file).exit_code == 0

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=2)

    monkeypatch.setattr(keeping, "datetime", Later)
    # Another format, elsewhere: what lies in the run must still fit what the run keeps.
    shown = invoke("audit", "report", good, "--format", "md", "--out", tmp_path / "out")
    assert shown.exit_code == 0, shown.stderr
    assert "WAIVER_EXPIRED" in {f["rule"] for f in told(good)["findings"]}
    assert verified(good) == 0


def test_critical_findings_fail_whatever_is_waived(clear: Path, tmp_path: Path) -> None:
    file = waivers(tmp_path, {"rule": "UNSAFE_CLEAR"})
    shown = invoke("audit", "report", clear, "--waivers", file)
    assert shown.exit_code == 3
    assert "UNSAFE_CLEAR" in shown.stderr and "WAIVED" not in shown.stderr


@pytest.mark.parametrize("missing", ["owner", "reason", "until"])
def test_a_waiver_without_owner_reason_or_expiry_exits_2(
    good: Path, tmp_path: Path, missing: str
) -> None:
    entry = {"rule": "MISSING", "owner": "o", "reason": "r", "until": today(1)}
    del entry[missing]
    file = tmp_path / "bad.json"
    file.write_text(json.dumps([entry]))
    shown = invoke("audit", "report", good, "--waivers", file)
    assert shown.exit_code == 2
    assert missing in shown.stderr and "What to do: " in shown.stderr
    assert not (good / "waivers.json").exists()


def test_a_baseline_is_kept_compared_and_verified(good: Path, clear: Path) -> None:
    shown = invoke("audit", "report", clear, "--baseline", good, "--fail-on", "never")
    assert shown.exit_code == 0, shown.stderr
    found = told(clear)["changes"]
    assert found["baseline_run"] == Run(good).view().roster_text.decode().split('"run": "')[1][:32]
    moves = {(c["kind"], c["move"]) for c in found["changes"]}
    assert ("finding", "new") in moves and ("egress", "worse") in moves
    assert verified(clear) == 0
    assert "stays in force" in invoke("audit", "report", clear, "--fail-on", "never").stderr
    shutil.rmtree(good)
    assert verified(clear) == 0
    invoke("audit", "report", clear, "--no-baseline", "--fail-on", "never")
    assert told(clear)["changes"] is None
    assert not (clear / "baseline.json").exists()


def test_a_baseline_may_be_a_report_json(good: Path, clear: Path, tmp_path: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    for old in (good, good / "report" / "report.json"):
        words = ("audit", "report", clear, "--fail-on", "never", "--out", tmp_path / "out")
        assert invoke(*words, "--baseline", old).exit_code == 0
    (tmp_path / "no.json").write_text("{}")
    for bad in (tmp_path / "no.json", tmp_path / "none.json", tmp_path):
        assert invoke("audit", "report", clear, "--baseline", bad).exit_code == 2


def test_giving_and_forgetting_at_once_exits_2(good: Path, tmp_path: Path) -> None:
    for name in ("baseline", "waivers"):
        shown = invoke("audit", "report", good, f"--{name}", good, f"--no-{name}")
        assert shown.exit_code == 2 and "contradict" in shown.stderr


def test_an_edited_report_is_not_overwritten_with_a_new_baseline(good: Path, clear: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    page = good / "report" / "report.html"
    page.write_bytes(page.read_bytes() + b"<!-- fine -->")
    out = ("--out", good.parent / "elsewhere")
    assert invoke("audit", "report", good, "--baseline", clear, *out).exit_code == 5
    assert page.read_bytes().endswith(b"<!-- fine -->")
    assert not (good / "baseline.json").exists()


def test_report_json_lists_every_code_that_applies(clear: Path) -> None:
    shown = invoke("audit", "report", clear, "--json", "--strict")
    found = json.loads(shown.stdout)
    assert found["exit_codes"] == [3, 4] and found["exit_code"] == 3 == shown.exit_code
    assert {f["rule"] for f in found["failing"]} == {"UNSAFE_CLEAR"}
    assert found["undecided"] and all(Path(path).is_file() for path in found["files"])
    assert "Exit codes that apply: 3 (findings), 4" in shown.stderr


def test_strict_exits_4_where_nothing_was_tested(good: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    strict = invoke("audit", "report", good, "--strict")
    assert strict.exit_code == 4
    assert "NOT TESTED" in strict.stderr
    assert invoke("audit", "report", good, "--strict", "--fail-on", "low").exit_code == 3


def test_codes_come_in_their_order(good: Path) -> None:
    made: Report = build_report(Run(good).view())
    claim = Claim(text="t", epsilon_claim="1", unit="client", status="falsified")
    step = made.integrity.steps[0].model_copy(update={"status": "FAIL"})
    broken = made.integrity.model_copy(update={"steps": (step,)})
    over = made.accounting[0].model_copy(update={"borne_out": False})
    high = made.findings[0].model_copy(update={"severity": "high"})
    changes: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [0]),
        ({"findings": (high,)}, [3]),
        ({"claims": (claim,)}, [7]),
        ({"accounting": (over,), "findings": (high,)}, [7, 3]),
        ({"integrity": broken, "claims": (claim,), "findings": (high,)}, [5, 7, 3]),
    ]
    for facts, expected in changes:
        assert codes_of(made.model_copy(update=facts), FailOn.high, strict=False) == expected
    assert codes_of(made, FailOn.never, strict=True) == [4]
    assert ordered({3, 4, 5, 6, 7}) == [5, 6, 7, 3, 4]


def test_diff_of_equal_runs_exits_0(good: Path) -> None:
    shown = invoke("audit", "diff", good, good)
    assert shown.exit_code == 0 and "0 moved" in shown.stdout


def test_diff_exits_3_for_what_is_new_or_worse(good: Path, clear: Path) -> None:
    shown = invoke("audit", "diff", good, clear)
    assert shown.exit_code == 3
    assert "UNSAFE_CLEAR" in shown.stderr and "Exit codes that apply: 3" in shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert invoke("audit", "diff", good, clear, "--fail-on", "never").exit_code == 0
    assert invoke("audit", "diff", clear, good).exit_code == 0  # better is no failure


def test_diff_does_not_fail_on_what_somebody_accepted(good: Path, tmp_path: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    waiver = {"owner": "o", "reason": "r", "until": today(1), "judged": today()}
    for accepted, code in ((None, 3), (waiver, 0)):
        document = told(good)
        extra = {"rule": "NEW", "severity": "high", "fingerprint": "1" * 64, "waiver": accepted}
        document["findings"].append({**document["findings"][0], **extra})
        (tmp_path / "new.json").write_text(json.dumps(document))
        assert invoke("audit", "diff", good, tmp_path / "new.json").exit_code == code


def test_diff_strict_exits_4_for_what_is_no_longer_measured(good: Path, tmp_path: Path) -> None:
    assert invoke("audit", "report", good).exit_code == 0
    document = told(good)
    document["accounting"] = []
    (tmp_path / "new.json").write_text(json.dumps(document))
    assert invoke("audit", "diff", good, tmp_path / "new.json").exit_code == 0
    assert invoke("audit", "diff", good, tmp_path / "new.json", "--strict").exit_code == 4


def test_diff_prints_json(good: Path, clear: Path) -> None:
    shown = invoke("audit", "diff", good, clear, "--format", "json")
    found = json.loads(shown.stdout)
    assert found["exit_codes"] == [3]
    keys = {"move", "kind", "what", "severity", "old", "new", "waived", "fingerprint"}
    assert {key for change in found["changes"] for key in change} == keys


def test_diff_of_broken_evidence_exits_5(good: Path, clear: Path, tmp_path: Path) -> None:
    spoilt = Path(shutil.copytree(good, tmp_path / "spoilt"))
    ledger = spoilt / "ledger" / "client-1.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    for pair in ((spoilt, good), (good, spoilt)):
        assert invoke("audit", "diff", *pair, "--fail-on", "never").exit_code == 5


def test_diff_of_what_is_neither_run_nor_report_exits_2(good: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    for bad in (tmp_path / "x.json", tmp_path / "none", tmp_path):
        shown = invoke("audit", "diff", good, bad)
        assert shown.exit_code == 2 and "What to do: " in shown.stderr
    bundle = tmp_path / "b.zip"
    assert invoke("audit", "bundle", good, "--out", bundle).exit_code == 0
    shown = invoke("audit", "diff", good, bundle)
    assert shown.exit_code == 2 and "as a bundle is" in shown.stderr
    with zipfile.ZipFile(bundle) as archive:  # where the error says that the report lies
        (tmp_path / "report.json").write_bytes(archive.read("report/report.json"))
    assert "unzip -p BUNDLE report/report.json" in shown.stderr.replace("\n", " ")
    assert invoke("audit", "diff", good, tmp_path / "report.json").exit_code == 0


def test_explain_says_what_a_run_has_of_a_word(good: Path) -> None:
    (finding,) = [f for f in build_report(Run(good).view()).findings if f.id == "F01"]
    shown = invoke("audit", "explain", "f01", "--run", good)
    assert shown.exit_code == 0
    assert finding.rule in shown.stdout and "In run " in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "step.up.SUM" in invoke("audit", "explain", "P05", "--run", good).stdout
    assert "Nothing." in invoke("audit", "explain", "A07", "--run", good).stdout


def test_explain_without_a_run_or_with_an_unknown_word(good: Path) -> None:
    assert invoke("audit", "explain", "exit", "codes").exit_code == 0
    bare = invoke("audit", "explain", "F03")
    assert bare.exit_code == 2 and "--run RUN" in bare.stderr
    assert invoke("audit", "explain", "F99", "--run", good).exit_code == 2
    near = invoke("audit", "explain", "UNSAFE_CLAER")
    assert near.exit_code == 2 and "did you mean 'UNSAFE_CLEAR'" in near.stderr
    far = invoke("audit", "explain", "9")
    assert far.exit_code == 2 and "A01 to A16, A20" in far.stderr


def test_export_writes_a_draft_and_overwrites_none(good: Path, tmp_path: Path) -> None:
    out = tmp_path / "draft.json"
    words = ("audit", "export", good, "--to", "cnil-pia", "--out", out)
    assert invoke(*words).exit_code == 0
    assert "answers" in json.loads(out.read_text())
    assert invoke(*words).exit_code == 2
    shown = invoke("audit", "export", good, "--to", "art30-csv")
    assert shown.exit_code == 0 and shown.stdout.startswith("record,")
    shown = invoke("audit", "export", good, "--to", "sarif")
    assert shown.exit_code == 0 and json.loads(shown.stdout)["version"] == "2.1.0"
    shown = invoke("audit", "export", good, "--to", "dpia-md")
    assert shown.exit_code == 0 and shown.stdout.startswith("# DRAFT")
    near = invoke("audit", "export", good, "--to", "cnil")
    assert near.exit_code == 2 and "did you mean 'cnil-pia'" in near.stderr


def test_export_makes_no_draft_of_broken_evidence(good: Path, tmp_path: Path) -> None:
    ledger = good / "ledger" / "client-1.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    out = tmp_path / "draft.csv"
    shown = invoke("audit", "export", good, "--to", "art30-csv", "--out", out)
    assert shown.exit_code == 5 and "FAILED at tree" in shown.stderr
    assert not out.exists()
    shown = invoke("audit", "export", good, "--to", "junit", "--out", out)
    assert shown.exit_code == 5 and "<failure" in out.read_text()


def test_an_export_judges_waivers_today(good: Path, tmp_path: Path) -> None:
    """Kept for long, a waiver that had ended was still said to be in force."""
    file = waivers(tmp_path, {"rule": "MISSING"})
    assert invoke("audit", "report", good, "--waivers", file).exit_code in (0, 3)
    words = ("audit", "export", good, "--to", "sarif")
    assert '"suppressions"' in invoke(*words).stdout  # the control: it holds today
    kept = json.loads((good / "waivers.json").read_text())
    entry = {**kept["waivers"][0], "until": today(-1)}
    document = {**kept, "judged": today(-9), "waivers": [entry]}  # as it was written nine days ago
    (good / "waivers.json").write_bytes(canonical(document))
    shown = invoke(*words)
    assert '"suppressions"' not in shown.stdout and "WAIVER_EXPIRED" in shown.stdout


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_shows_an_example_in_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke("audit", name, "--help")
    assert shown.exit_code == 0
    assert f"secure-fgl audit {name}" in shown.stdout.split("Example")[1]
    assert max(map(len, shown.stdout.splitlines())) <= 80
