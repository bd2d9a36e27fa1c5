"""``audit bundle`` and ``audit verify BUNDLE``: keys, options, exit codes, last words."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from audits.bundle.statements import PAYLOAD_TYPE, SVR, open_statement
from crypto.signing import VerifyKey
from secure_fgl.errors import UsageError
from secure_fgl.store.bundles import environment, load_key
from tests.audits.forging import edit_last, forge
from tests.audits.toy_run import AGGREGATOR, RESULT, Toy, run_toy, save, stated, text, with_reports
from tests.secure_fgl.cli_tools import invoke

PEM, PKCS8 = Encoding.PEM, PrivateFormat.PKCS8


@pytest.fixture(scope="module")
def toy() -> Toy:
    return run_toy()


@pytest.fixture
def run(toy: Toy, tmp_path: Path) -> Path:
    """A run folder; models are left out, and the ledger says that there are none."""
    return saved(toy, tmp_path / "run")


def saved(toy: Toy, folder: Path) -> Path:
    none = {**stated(model_sha256=None), "model": "", "best": ""}
    view = forge(toy, toy.view(), AGGREGATOR, edit_last("close", result=none))
    result = text({**RESULT, "model_sha256": None})
    view = with_reports(replace(view, weights={}, result_text=result))
    save(view, folder)
    for name, data in view.reports.items():
        (folder / "report").mkdir(exist_ok=True)
        (folder / "report" / name).write_bytes(data)
    return folder


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return written(tmp_path / "auditor.pem", Ed25519PrivateKey.generate())


def written(path: Path, key: Any, encryption: Any = None, mode: int = 0o600) -> Path:
    path.write_bytes(key.private_bytes(PEM, PKCS8, encryption or NoEncryption()))
    path.chmod(mode)
    return path


def verified(path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    shown = invoke("audit", "verify", path, "--format", "json", *options)
    return shown.exit_code, json.loads(shown.stdout)


def test_a_signed_bundle_is_written_and_verifies(run: Path, key: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "evidence.zip"
    shown = invoke("audit", "bundle", run, "--key", key, "--out", out)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout == f"{out}\n"
    assert load_key(key).public.raw.hex() in shown.stderr
    code, told = verified(out)
    assert (code, told["failed"]) == (0, None)
    assert {s["name"]: s["status"] for s in told["steps"]}["attestations"] == "OK"
    assert not list(out.parent.glob("*.new"))


def test_without_a_key_the_bundle_lies_in_the_run_folder_and_says_that_nobody_signed(
    run: Path,
) -> None:
    before = verified(run)
    shown = invoke("audit", "bundle", run)
    assert shown.exit_code == 0, shown.stderr
    assert "Not signed" in shown.stderr
    code, told = verified(run / "bundle.zip")
    assert code == 0
    assert {s["name"]: s["status"] for s in told["steps"]}["attestations"] == "NOT CHECKED"
    assert "attestations" in told["integrity"]
    assert verified(run) == before  # a bundle in its folder changes nothing about a run


def test_integrity_and_completeness_are_told_apart(run: Path) -> None:
    for path in (run, _bundled(run)):
        _, told = verified(path)
        assert told["integrity"].startswith("Integrity: ")
        assert "NOT CHECKED: " in told["integrity"]
        assert told["completeness"].startswith("Completeness: no step shows")
        shown = invoke("audit", "verify", path).stdout.splitlines()
        assert sum(line.startswith(("Integrity: ", "Completeness: ")) for line in shown) == 2
    ledger = run / "ledger" / "client-1.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-1])
    code, told = verified(run)
    assert code == 5
    assert told["integrity"].startswith("Integrity: broken; FAILED at chain")
    policy = run / "policy.json"  # another policy is not just another plan than was expected
    policy.write_text(policy.read_text().replace('"minimum_cohort": 3', '"minimum_cohort": 4'))
    for words in ((), ("--expect-plan", "0" * 64)):
        assert verified(run, *words)[1]["integrity"] == "Integrity: broken; FAILED at plan."


def _bundled(run: Path, *options: object) -> Path:
    out = run.parent / "b.zip"
    assert invoke("audit", "bundle", run, "--out", out, *options).exit_code == 0
    return out


def test_a_changed_bundle_exits_5_and_names_the_step(run: Path) -> None:
    path = _bundled(run)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shown = invoke("audit", "verify", path)
    assert shown.exit_code == 5
    assert "FAILED at manifest" in shown.stderr
    for spoilt in (b"?" + data[1:], data[: len(data) // 2]):  # one end of a bundle is enough
        path.write_bytes(spoilt)
        assert invoke("audit", "verify", path).exit_code == 5


def test_a_broken_run_gets_a_bundle_and_exit_5(run: Path) -> None:
    ledger = run / "ledger" / "client-1.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    refused = invoke("audit", "bundle", run)  # the report was made before, and says otherwise
    assert refused.exit_code == 5 and not (run / "bundle.zip").exists()
    assert "FAILED at tree" in refused.stderr and "move the folder report/ away" in refused.stderr
    shutil.rmtree(run / "report")
    shown = invoke("audit", "bundle", run)
    assert shown.exit_code == 5
    assert "FAILED at tree" in shown.stderr
    assert verified(run / "bundle.zip")[1]["failed"] == "tree"


def test_an_edited_report_gets_no_bundle(run: Path) -> None:
    page = run / "report" / "report.html"
    page.write_bytes(page.read_bytes() + b"<!-- fine -->")
    shown = invoke("audit", "bundle", run)
    assert shown.exit_code == 5
    assert "FAILED at report" in shown.stderr
    assert "make it anew" in shown.stderr and "ask each party" not in shown.stderr
    assert not (run / "bundle.zip").exists()


def test_a_bundle_is_never_overwritten(run: Path) -> None:
    path = _bundled(run)
    before = path.read_bytes()
    shown = invoke("audit", "bundle", run, "--out", path)
    assert shown.exit_code == 2
    assert "exists already" in shown.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o660])
def test_a_key_that_others_may_read_or_write_is_refused(run: Path, key: Path, mode: int) -> None:
    key.chmod(mode)
    shown = invoke("audit", "bundle", run, "--key", key)
    assert shown.exit_code == 2
    assert "open to others" in shown.stderr and "chmod 600" in shown.stderr
    assert not (run / "bundle.zip").exists()


def test_anything_but_a_plain_ed25519_key_is_refused(tmp_path: Path) -> None:
    own = Ed25519PrivateKey.generate()
    locked = written(tmp_path / "locked.pem", own, BestAvailableEncryption(b"secret"))
    other = written(tmp_path / "other.pem", X25519PrivateKey.generate())
    junk = tmp_path / "junk.pem"
    junk.write_bytes(b"-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n")
    junk.chmod(0o600)
    padded = tmp_path / "padded.pem"
    padded.write_bytes(b"\n" * 5000 + own.private_bytes(PEM, PKCS8, NoEncryption()))
    padded.chmod(0o600)
    for path in (locked, other, junk, padded):
        with pytest.raises(UsageError) as caught:
            load_key(path)
        assert "hunter2" not in str(caught.value)
    for path in (tmp_path / "none.pem", tmp_path):
        with pytest.raises(UsageError):
            load_key(path)


def test_the_documented_command_makes_a_key_that_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "auditor.pem"
    words = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert isinstance(load_key(path).public, VerifyKey)


def test_trust_and_heads_are_compared(run: Path, key: Path, toy: Toy, tmp_path: Path) -> None:
    path, trust, heads = _bundled(run, "--key", key), tmp_path / "t.json", tmp_path / "h.json"
    auditor = load_key(key).public.raw.hex()
    known = {p["name"]: p["verify"] for p in toy.roster.document()} | {"auditor": auditor}
    trust.write_text(json.dumps(known))
    heads.write_text(
        json.dumps({f.stem: f.read_text() for f in (run / "heads").glob("*.checkpoint")})
    )
    code, told = verified(path, "--trust", trust, "--heads", heads)
    assert code == 0
    left = {s["name"] for s in told["steps"] if s["status"] != "OK"}
    assert left == {"approvals", "captured"}  # a simulation has no charter
    trust.write_text(json.dumps({**known, "auditor": "ab" * 32}))
    code, told = verified(path, "--trust", trust)
    assert (code, told["failed"]) == (5, "trust")
    assert verified(run, "--trust", trust)[0] == 0  # a folder has no auditor


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"a": 1}', '{"a": "ab"}', '{"a": "%s"}' % ("AB" * 32), "{", "null"]
)
def test_a_list_of_keys_in_another_form_is_a_usage_error(
    run: Path, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    shown = invoke("audit", "verify", run, "--trust", path)
    assert shown.exit_code == 2
    assert "What to do" in shown.stderr


def test_keys_from_the_run_folder_itself_sign_for_nothing(run: Path) -> None:
    (run / "keys.json").write_text(json.dumps({"auditor": "ab" * 32}))
    assert invoke("audit", "verify", run, "--trust", run / "keys.json").exit_code == 2


def test_verify_signs_what_passed_and_nothing_else(run: Path, key: Path, tmp_path: Path) -> None:
    path, out = _bundled(run), tmp_path / "svr.dsse.json"
    assert invoke("audit", "verify", path, "--svr", out, "--key", key).exit_code == 0
    one, public = open_statement(out.read_bytes()), load_key(key).public
    one.envelope.verify(PAYLOAD_TYPE, {public.key_id: public})
    assert one.predicate_type == SVR
    passed = one.predicate["properties"]
    assert "SECURE_FGL_MANIFEST" in passed and "SECURE_FGL_ATTESTATIONS" not in passed
    assert [s["name"] for s in one.subjects] == ["b.zip"]
    spoilt, other = tmp_path / "none.json", ("--expect-plan", "0" * 64)
    assert invoke("audit", "verify", path, *other, "--svr", spoilt, "--key", key).exit_code == 5
    assert not spoilt.exists()
    for words in (("--svr", spoilt), ("--key", key)):
        assert invoke("audit", "verify", path, *words).exit_code == 2
    assert invoke("audit", "verify", run, "--svr", spoilt, "--key", key).exit_code == 2


def test_heads_and_keys_in_place_of_each_other_are_a_usage_error(run: Path, tmp_path: Path) -> None:
    heads = {f.stem: f.read_text() for f in (run / "heads").glob("*.checkpoint")}
    files = {"heads": heads, "trust": {"auditor": "ab" * 32}, "upper": {"auditor": "AB" * 32}}
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    for path in (run, _bundled(run)):
        shown = invoke("audit", "verify", path, "--heads", tmp_path / "trust.json")
        assert shown.exit_code == 2 and "no checkpoint" in shown.stderr
        assert "broken" not in shown.stdout
        shown = invoke("audit", "verify", path, "--trust", tmp_path / "heads.json")
        assert shown.exit_code == 2 and "public key" in shown.stderr
        assert invoke("audit", "verify", path, "--heads", tmp_path / "heads.json").exit_code == 0
    shown = invoke("audit", "verify", run, "--trust", tmp_path / "upper.json")
    assert shown.exit_code == 2 and "upper case" in shown.stderr


def test_one_spoilt_head_of_many_is_a_usage_error(run: Path, tmp_path: Path) -> None:
    heads = {f.stem: f.read_text() for f in (run / "heads").glob("*.checkpoint")}
    first = next(iter(heads))
    origin, size, root, *rest = heads[first].split("\n")
    for spoilt in (
        heads[first][:-20],
        heads[first] + "more\n",
        "\n".join([origin, "many", root, *rest]),
        "",
    ):
        (tmp_path / "h.json").write_text(json.dumps({**heads, first: spoilt}))
        shown = invoke("audit", "verify", run, "--heads", tmp_path / "h.json")
        assert shown.exit_code == 2 and f"1 of {len(heads)}" in shown.stderr
    # In the right form and not the run's: that is evidence, and no mistake of whoever verifies.
    other = "\n".join([origin, str(int(size) + 1), root, *rest])
    (tmp_path / "h.json").write_text(json.dumps({**heads, first: other}))
    assert verified(run, "--heads", tmp_path / "h.json")[1]["failed"] == "heads"


def test_what_is_neither_bundle_nor_run_is_a_usage_error(tmp_path: Path, key: Path) -> None:
    for path in (key, tmp_path, tmp_path / "none.zip"):
        shown = invoke("audit", "verify", path)
        assert shown.exit_code == 2
        assert "neither a bundle nor a run folder" in shown.stderr and "Why: " in shown.stderr
    for path in (tmp_path, tmp_path / "none.zip"):
        assert invoke("audit", "verify", path).exit_code == 2
        assert invoke("audit", "bundle", path).exit_code == 2


def test_the_bill_of_materials_is_cyclonedx_of_what_is_installed() -> None:
    files = environment()
    bill, versions = (json.loads(files[f"env/{n}.json"]) for n in ("sbom.cdx", "versions"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    names = {c["name"] for c in bill["components"]}
    assert {"cryptography", "numpy", "torch", "cffi"} <= names  # cffi: what cryptography needs
    assert "pytest" not in names
    assert bill["metadata"]["component"]["name"] == "secure-fgl"
    refs = [c["bom-ref"] for c in bill["components"]]
    assert len(set(refs)) == len(refs)
    assert all(c["purl"] == f"pkg:pypi/{c['name']}@{c['version']}" for c in bill["components"])
    assert versions["packages"]["numpy"]
    assert environment() == files


def test_help_shows_an_example_on_eighty_columns() -> None:
    shown = invoke("audit", "bundle", "--help").stdout
    assert "secure-fgl audit bundle runs/first --key auditor.pem" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
