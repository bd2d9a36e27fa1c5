"""Honest bundles: the same bytes every time, what is in them, and what verify says of them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from audits.accounting.account import account
from audits.attacks._shared.models import AttackRow, NotTested
from audits.bundle.archive import MANIFEST, pack, read_manifest, signed, unpack, view_of
from audits.bundle.making import make, portable, statements
from audits.bundle.statements import AUDITOR as ROLE
from audits.bundle.statements import (
    LEAKAGE_AUDIT,
    PAYLOAD_TYPE,
    PREDICATES,
    STATEMENT,
    SVR,
    TEST_RESULT,
    leakage_audit,
    open_statement,
    test_result,
)
from audits.checks.bundle import verify_bundle, verify_run
from audits.evidence.steps import SELF_CONSISTENT, WITNESSED, Status
from audits.evidence.verify import CHECKS
from audits.report.build import build_report
from crypto.signing import SigningKey, canonical
from protocols.errors import EvidenceError
from protocols.versions import BUNDLE
from tests.audits.bundle_tools import (
    AUDITOR,
    DATA,
    DAY,
    ENVIRONMENT,
    FILES,
    STATEMENTS,
    TOY,
    UNSIGNED,
    fails_at,
    listed,
    made,
    roster_keys,
    status,
)
from tests.audits.forging import edit_last, forge, without_models
from tests.audits.toy_run import CLIENTS, RESULT, Toy, run_toy, save, text
from tests.audits.verify_tools import refused
from tests.secure_fgl.cli_tools import invoke

TRUSTED = {**roster_keys(TOY), "our auditor": AUDITOR.public.raw.hex()}
STEPS = [
    "manifest",
    "attestations",
    *(check.name for check in CHECKS),
    "accounting",
    "statements",
    "trust",
]


def predicate(files: dict[str, bytes], name: str) -> dict[str, object]:
    return dict(open_statement(files[f"attestations/{name}.dsse.json"]).predicate)


def test_an_honest_bundle_passes_every_step_in_order():
    found = verify_bundle(DATA)
    assert [s.name for s in found.steps] == STEPS
    assert found.ok, found.failed
    left = {s.name for s in found.steps if s.status is Status.NOT_CHECKED}
    assert left == {"approvals", "captured", "heads", "trust"}
    assert found.verdict == SELF_CONSISTENT


def test_with_heads_and_keys_from_elsewhere_captures_alone_are_left_unchecked():
    found = verify_bundle(DATA, heads=TOY.checkpoints, trusted=TRUSTED, expect_plan=TOY.plan.digest)
    assert {s.name for s in found.steps if s.status is not Status.OK} == {
        "approvals",  # of a simulation
        "captured",
    }
    assert status(found, "captured") is Status.NOT_CHECKED
    assert found.verdict == WITNESSED


def test_the_same_run_gives_the_same_bytes():
    assert pack(made(TOY.view())) == DATA
    assert pack(dict(reversed(FILES.items()))) == DATA


def test_the_archive_has_one_form_whatever_packs_it():
    # Known answer: another zipfile module that lays archives out in another way shows here.
    data = pack({"plan.json": b"{}", "heads/a.checkpoint": b""})
    assert hashlib.sha256(data).hexdigest() == (
        "f036ee7dd3d16d6e0a1feea353119a3917317c1f305c5b4c57eae8628df8c26d"
    )
    assert unpack(data) == {"plan.json": b"{}", "heads/a.checkpoint": b""}


def test_anybody_s_tool_reads_the_archive():
    with zipfile.ZipFile(BytesIO(DATA)) as archive:
        assert archive.testzip() is None
        assert {i.filename for i in archive.infolist()} == set(FILES)


def test_the_manifest_lists_every_file_with_digest_size_and_type():
    listed = {f["path"]: f for f in json.loads(FILES[MANIFEST])["files"]}
    assert set(listed) == set(FILES) - {MANIFEST}
    for path, data in FILES.items():
        if path != MANIFEST:
            assert listed[path]["sha256"] == hashlib.sha256(data).hexdigest()
            assert listed[path]["size"] == len(data)
            assert "/" in listed[path]["type"]


def test_a_bundle_is_read_back_as_the_run_it_was_made_of():
    view, was = view_of(FILES), TOY.view()
    assert replace(view, reports={}) == replace(was, reports={})
    assert set(view.reports) == set(was.reports)
    assert json.loads(FILES["accounting.json"]) == json.loads(account(was).model_dump_json())


def test_o29_neither_paths_nor_machine_of_the_run_go_in(tmp_path):
    secret = str(tmp_path / "who-lives-here")
    result = {**RESULT, "run_dir": secret, "wall_s": 12.125, "peak_mb": 7.5, "protect_s": 0.25}
    files = made(replace(TOY.view(reports=False), result_text=text(result)))
    assert not [path for path, data in files.items() if secret.encode() in data]
    assert json.loads(files["result.json"]) == RESULT
    assert verify_bundle(pack(files)).ok


def test_a_result_without_such_facts_keeps_its_bytes():
    odd = replace(TOY.view(reports=False), result_text=json.dumps(RESULT).encode())
    assert portable(odd).result_text == odd.result_text


def test_o29_what_a_bundle_says_itself_holds_a_day_and_no_hour():
    assert predicate(FILES, "svr")["timeCreated"] == f"{DAY}T00:00:00Z"
    own = {p: d for p, d in FILES.items() if p.startswith(("attest", "keys", "env", "manifest"))}
    for data in own.values():
        assert not re.search(rb"T(?!00:00:00Z)\d\d:\d\d:\d\d", data)
    with pytest.raises(ValueError, match="YYYY"):
        make(TOY.view(), environment=ENVIRONMENT, day="2026-01-02T03:04:05Z", signer=AUDITOR)


def test_no_model_and_no_secret_goes_in():
    digests = json.loads(FILES["checkpoints.json"])
    assert digests == TOY.view().weights
    assert not [path for path in FILES if path.endswith((".npz", ".pem", ".yaml"))]
    seed = bytes(range(32))
    assert not [path for path, d in FILES.items() if seed in d or seed.hex().encode() in d]


def test_without_an_auditor_the_bundle_says_so():
    found = verify_bundle(pack(UNSIGNED))
    assert found.ok
    assert status(found, "attestations") is status(found, "statements") is Status.NOT_CHECKED
    assert not [path for path in UNSIGNED if path.startswith("attestations/")]


def test_statements_have_the_published_members_and_are_about_every_other_file():
    listed = signed(read_manifest(FILES))
    kinds = {}
    for path in STATEMENTS:
        one = open_statement(FILES[path])
        body = json.loads(one.envelope.body)
        assert body["_type"] == "https://in-toto.io/Statement/v1"
        assert {s["name"]: s["digest"]["sha256"] for s in body["subject"]} == {
            f.path: f.sha256 for f in listed
        }
        assert one.envelope.verify(PAYLOAD_TYPE, {AUDITOR.public.key_id: AUDITOR.public})
        kinds[one.predicate_type] = body["predicate"]
    assert {f.path for f in listed} == set(FILES) - {MANIFEST, *STATEMENTS}
    assert set(kinds) == {LEAKAGE_AUDIT, TEST_RESULT, SVR}
    known = {"result", "configuration", "passedTests", "warnedTests", "failedTests"}
    assert set(kinds[TEST_RESULT]) == known
    assert set(kinds[SVR]) == {"verifier", "timeCreated", "properties"}
    assert set(kinds[SVR]["verifier"]) == {"id", "policies"}


def test_the_leakage_audit_names_plan_policy_heads_and_the_strip():
    found, report = predicate(FILES, "leakage-audit"), json.loads(FILES["report/report.json"])
    assert found["planDigest"] == {"sha256": TOY.plan.digest}
    assert found["policyDigest"] == {"sha256": TOY.policy.digest}
    assert found["run"] == TOY.run
    assert {h["party"] for h in found["heads"]} == set(TOY.stores)
    assert [s["answer"] for s in found["verdictStrip"]] == [
        line["answer"] for line in report["verdict_strip"]
    ]


def test_what_was_not_checked_is_warned_and_never_passed():
    found = predicate(FILES, "test-result")
    assert found["result"] == "WARNED"
    assert "verify/heads" in found["warnedTests"] and "verify/chain" in found["passedTests"]
    assert "SECURE_FGL_HEADS" not in predicate(FILES, "svr")["properties"]
    assert "SECURE_FGL_CHAIN" in predicate(FILES, "svr")["properties"]


def test_a_broken_run_gets_a_bundle_that_says_so():
    broken = forge(TOY, TOY.view(), CLIENTS[0], edit_last("key", key="ab" * 16))
    files = made(broken)
    found = predicate(files, "test-result")
    assert found["result"] == "FAILED"
    assert "verify/receipts" in found["failedTests"]
    assert "SECURE_FGL_RECEIPTS" not in predicate(files, "svr")["properties"]
    assert verify_bundle(pack(files)).failed.name == "receipts"


def test_a_run_that_ended_early_gets_its_bundle():
    found = verify_bundle(pack(made(refused().view())))
    assert found.ok, found.failed


def test_an_edited_report_is_not_passed_on(view):
    edited = {**view.reports, "report.md": view.reports["report.md"] + b"fine"}
    with pytest.raises(EvidenceError) as caught:
        made(replace(view, reports=edited))
    assert caught.value.step == "report"


def test_a_party_cannot_be_its_own_auditor():
    toy = run_toy(rounds=1)
    with pytest.raises(EvidenceError):
        made(toy.view(reports=False), signer=toy.identities[CLIENTS[0]].signing)


def test_trust_compares_every_key_and_says_what_is_missing():
    def told(**keys):
        found = verify_bundle(DATA, trusted={**TRUSTED, **keys})
        return found.steps[-1]

    stranger = SigningKey.generate().public.raw.hex()
    assert told().status is Status.OK
    assert told(**{CLIENTS[1]: stranger}).status is Status.FAIL
    assert CLIENTS[1] in told(**{CLIENTS[1]: stranger}).detail
    assert told(**{"our auditor": stranger}).status is Status.FAIL
    assert told(**{"another auditor": stranger}).status is Status.OK  # ours is among them
    for some in ({CLIENTS[0]: TRUSTED[CLIENTS[0]]}, roster_keys(TOY), {}):
        found = verify_bundle(DATA, trusted=some)
        assert status(found, "trust") is Status.NOT_CHECKED
    assert status(verify_bundle(pack(UNSIGNED), trusted=roster_keys(TOY)), "trust") is Status.OK


def test_a_named_auditor_must_really_have_signed():
    """keys/trust.json is a file of whoever made the bundle: what it lists proves nothing."""
    fails_at("trust", pack(UNSIGNED), "no auditor of --trust signed", trusted=TRUSTED)
    stripped = {path: data for path, data in FILES.items() if path not in STATEMENTS}
    assert b"auditor" in stripped["keys/trust.json"]
    fails_at("trust", listed(stripped), "no auditor of --trust signed", trusted=TRUSTED)
    one = {path: data for path, data in FILES.items() if path != STATEMENTS[0]}
    fails_at("attestations", listed(one), "was taken out", trusted=TRUSTED)


@pytest.mark.parametrize("path", [[], {}, None, 1, True])
def test_a_manifest_that_lists_no_path_fails_and_does_not_crash(path):
    rows = [{"path": path}, *json.loads(FILES[MANIFEST])["files"]]
    forged = {**FILES, MANIFEST: canonical({"files": rows, "version": BUNDLE.version})}
    fails_at("manifest", pack(forged), "lists something that is no file")
    forged[MANIFEST] = canonical({"files": rows[1:], "version": True})
    fails_at("manifest", pack(forged), "states no format version")


def test_trust_works_on_a_run_folder_too():
    view = TOY.view()
    assert status(verify_run(view), "trust") is Status.NOT_CHECKED
    assert status(verify_run(view, trusted=roster_keys(TOY)), "trust") is Status.OK
    assert status(verify_run(view, trusted=TRUSTED), "trust") is Status.NOT_CHECKED
    stolen = {**roster_keys(TOY), CLIENTS[0]: "ab" * 32}
    assert verify_run(view, trusted=stolen).failed.name == "trust"


def test_the_page_on_checking_by_hand_works_as_it_stands(tmp_path: Path):
    (tmp_path / "bundle.zip").write_bytes(DATA)
    page = FILES["VERIFY.md"].decode()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks[:3]:
        done = by_hand(block, tmp_path)
        assert done.returncode == 0, done.stderr
        assert "OK" in done.stdout
    assert done.stdout.count("Verified Successfully") == len(TOY.stores)
    assert by_hand(blocks[3], tmp_path).stdout == "no charter: a simulation\n"
    # Controls: the same commands stop at a changed file, statement and ledger.
    ledger = tmp_path / "bundle" / "ledger" / f"{CLIENTS[0]}.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"time":"2026', b'"time":"2025', 1))
    assert by_hand(blocks[0].partition("\n")[2], tmp_path).returncode != 0
    assert by_hand(blocks[2], tmp_path).returncode != 0
    signed = tmp_path / "by-hand" / "svr.sig"
    attested = tmp_path / "bundle" / "attestations" / "svr.dsse.json"
    envelope = json.loads(attested.read_text())
    envelope["signatures"][0]["sig"] = "A" * 86 + "=="
    attested.write_text(json.dumps(envelope))
    assert signed.is_file()
    assert by_hand(blocks[1], tmp_path).returncode != 0


def by_hand(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-e", "-c", commands]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_keys_name_role_and_run():
    keys = json.loads(FILES["keys/trust.json"])["keys"]
    assert {k["role"] for k in keys} >= {ROLE, "client", "aggregator", "key_authority"}
    assert {k["run"] for k in keys} == {TOY.run}


ROW = AttackRow(
    id="A05",
    name="grad-span",
    question="Is a record in the update?",
    payload="P05",
    what="the update",
    profile="quick",
    n_clients=0,
    n_pos=0,
    n_neg=0,
    seed="0" * 64,
    metric="auc",
    chance="",
    margin="0.05",
    gate="0.15",
    verdict="INCONCLUSIVE",
    reason="too few clients",
)


@pytest.mark.parametrize(
    ("verdict", "where", "result"),
    [
        ("INCONCLUSIVE", "warnedTests", "WARNED"),
        ("INVALID", "warnedTests", "WARNED"),
        ("ERROR", "warnedTests", "WARNED"),
        ("PASS", "passedTests", "WARNED"),
        ("FAIL", "failedTests", "FAILED"),
        ("NOT_APPLICABLE", "", "WARNED"),
    ],
)
def test_an_attack_that_decided_nothing_is_warned_and_never_passed(verdict, where, result):
    report = build_report(TOY.view(reports=False))
    rows = (ROW.model_copy(update={"verdict": verdict}),)
    untested = (NotTested(payload="P07", why="no attack"),)
    found = test_result(report.model_copy(update={"attacks": rows, "not_tested": untested}), [])
    lists = [name for name in found if "attack/A05/P05/the update" in found[name]]
    assert lists == ([where] if where else [])
    assert found["result"] == result
    assert "attack/not tested/P07" in found["warnedTests"]
    audit = leakage_audit(report.model_copy(update={"attacks": rows, "not_tested": untested}))
    assert audit["attacks"] == [
        {"id": "A05", "payload": "P05", "verdict": verdict, "what": "the update"}
    ]
    assert audit["notTested"] == ["P07"]


def test_only_what_all_passed_is_passed():
    report = build_report(TOY.view(reports=False))
    steps = tuple(s.model_copy(update={"status": "OK"}) for s in report.integrity.steps)
    rows = (ROW.model_copy(update={"verdict": "PASS"}),)
    fine = {"integrity": report.integrity.model_copy(update={"steps": steps})}
    done = report.model_copy(update={**fine, "attacks": rows, "not_tested": ()})
    assert test_result(done, [])["result"] == "PASSED"
    assert test_result(report.model_copy(update={**fine, "attacks": ()}), [])["result"] == "WARNED"


def test_statements_without_a_bundle_are_about_the_run_s_files(toy: Toy, tmp_path: Path) -> None:
    view = without_models(toy)
    report = build_report(view)
    plain, signed = statements(view, report, None), statements(view, report, AUDITOR)
    assert plain == statements(view, report, None) and signed == statements(view, report, AUDITOR)
    for kind, name in PREDICATES.items():
        if name == "svr":
            continue
        body = json.loads(plain[f"{name}.intoto.json"])
        assert (body["_type"], body["predicateType"]) == (STATEMENT, kind)
        one = open_statement(signed[f"{name}.dsse.json"])
        one.envelope.verify(PAYLOAD_TYPE, {AUDITOR.public.key_id: AUDITOR.public})
        assert dict(one.predicate) == body["predicate"]
        about = {subject["name"] for subject in body["subject"]}
        assert {"plan.json", "ledger/client-1.jsonl", "heads/client-1.checkpoint"} <= about
    run, out = save(view, tmp_path / "run"), tmp_path / "out"
    words = ("audit", "report", run, "--fail-on", "never", "--format")
    assert invoke(*words, "intoto", "--out", out).exit_code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == plain
    assert not (run / "report").exists()
    assert invoke(*words, "html,intoto", "--out", tmp_path / "both").exit_code == 0
    assert (tmp_path / "both" / "report.html").is_file()
    assert invoke(*words, "intoto").exit_code == 2
    assert invoke(*words, "html", "--key", tmp_path / "no.pem").exit_code == 2
