"""Every tampering with a bundle, at the step that must name it.

A forger has three ways: to change bytes only (``manifest`` tells), to list the changed files anew
(``attestations`` tells), and to take the statements out as well; then the run's own steps tell, and
the bundle says that nobody signed it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from audits.bundle.archive import MANIFEST, manifest, pack, read_manifest, signed
from audits.bundle.statements import (
    LEAKAGE_AUDIT,
    PAYLOAD_TYPE,
    PREDICATES,
    keys_text,
    open_statement,
    statement,
    subjects,
)
from audits.checks.bundle import verify_bundle
from audits.evidence.steps import SELF_CONSISTENT, Status
from crypto.signing import Signed, SigningKey, canonical, sign
from tests.audits.bundle_tools import (
    AUDITOR,
    DATA,
    FILES,
    STATEMENTS,
    TOY,
    UNSIGNED,
    changed,
    fails_at,
    listed,
    made,
    roster_keys,
    status,
)
from tests.audits.forging import edit_last, forge, write
from tests.audits.forging import sign as sign_head
from tests.audits.toy_run import CLIENTS, run_toy
from tests.audits.verify_tools import _entries

CLIENT = CLIENTS[1]
LEDGER, HEAD = f"ledger/{CLIENT}.jsonl", f"heads/{CLIENT}.checkpoint"
SECOND = run_toy()  # the same plan, another run
OTHER = run_toy(rounds=1)
KEY = SigningKey.generate()
Files = dict[str, bytes]


def lines(files: Files) -> list[bytes]:
    return files[LEDGER].splitlines(keepends=True)


def flip(files: Files) -> Files:
    return {**files, LEDGER: files[LEDGER].replace(b'"time":"2026', b'"time":"2025', 1)}


def drop(files: Files) -> Files:
    found = lines(files)
    return {**files, LEDGER: b"".join([*found[:3], *found[4:]])}


def insert(files: Files) -> Files:
    found = lines(files)
    return {**files, LEDGER: b"".join([*found[:4], found[3], *found[4:]])}


def swap(files: Files) -> Files:
    found = lines(files)
    found[3], found[4] = found[4], found[3]
    return {**files, LEDGER: b"".join(found)}


def truncate(files: Files) -> Files:
    return {**files, LEDGER: b"".join(lines(files)[:-1])}


def unsalt(files: Files) -> Files:
    """Take the salt out of an entry and mend chain and head, as the party itself could."""
    entries = _entries(TOY.view(), CLIENT)
    entries[3] = {name: value for name, value in entries[3].items() if name != "salt"}
    data = write(entries)
    return {**files, LEDGER: data, HEAD: sign_head(TOY, CLIENT, data).encode()}


def fork(files: Files) -> Files:
    """Rewrite the party's past under its own key."""
    return of(files, forge(TOY, TOY.view(), CLIENT, edit_last("key", key="ab" * 16)))


def replay(files: Files) -> Files:
    """Put in the same party's ledger of another run of the same plan."""
    return of(files, SECOND.view(reports=False), only=CLIENT)


def stale_head(files: Files) -> Files:
    """Sign the head with the key that the party had in another run."""
    key = SECOND.identities[CLIENT].signing
    return {**files, HEAD: sign_head(TOY, CLIENT, files[LEDGER], key).encode()}


def other_plan(files: Files) -> Files:
    return {**files, "plan.json": OTHER.plan.text().encode()}


def other_roster(files: Files) -> Files:
    return {**files, "roster.json": SECOND.view(reports=False).roster_text}


def edit_report(files: Files) -> Files:
    return {**files, "report/report.html": files["report/report.html"] + b"<!-- fine -->"}


def edit_report_data(files: Files) -> Files:
    data = files["report/report.json"].replace(b'"severity": "', b'"severity":  "', 1)
    return {**files, "report/report.json": data}


def edit_account(files: Files) -> Files:
    return {**files, "accounting.json": files["accounting.json"].replace(b"NO CLAIM", b"NO CLAMS")}


def edit_metrics(files: Files) -> Files:
    return {**files, "metrics.jsonl": files["metrics.jsonl"].replace(b"0.75", b"0.85")}


def edit_models(files: Files) -> Files:
    digests = {**json.loads(files["checkpoints.json"]), "final": "ab" * 32}
    return {**files, "checkpoints.json": canonical(digests)}


def edit_keys(files: Files) -> Files:
    """Name another key than the roster's for a party."""
    return {**files, "keys/trust.json": keys_text(TOY.run, SECOND.roster, None)}


def of(files: Files, view: object, only: str = "") -> Files:
    ledgers, heads = view.ledgers, view.checkpoints  # type: ignore[attr-defined]
    names = [only] if only else list(ledgers)
    found = dict(files)
    for name in names:
        found[f"ledger/{name}.jsonl"] = ledgers[name]
        found[f"heads/{name}.checkpoint"] = heads[name].encode()
    return found


Change = Callable[[Files], Files]
TAMPERED: dict[Change, str] = {
    flip: "chain",
    drop: "chain",
    insert: "chain",
    swap: "chain",
    truncate: "tree",
    unsalt: "chain",
    fork: "receipts",
    replay: "roster",
    stale_head: "tree",
    other_plan: "plan",
    other_roster: "roster",
    edit_report: "report",
    edit_report_data: "report",
    edit_account: "accounting",
    edit_metrics: "result",
    edit_models: "result",
    edit_keys: "trust",
}


@pytest.mark.parametrize("change", TAMPERED, ids=lambda c: c.__name__)
def test_changed_bytes_fail_at_manifest(change):
    found = change(FILES)
    assert found != FILES
    fails_at("manifest", pack(found), "is not the file that manifest.json lists")


@pytest.mark.parametrize("change", TAMPERED, ids=lambda c: c.__name__)
def test_files_listed_anew_fail_at_attestations(change):
    fails_at("attestations", listed(change(FILES)))


@pytest.mark.parametrize(
    ("change", "step"), TAMPERED.items(), ids=lambda c: getattr(c, "__name__", c)
)
def test_without_statements_the_run_s_own_steps_tell(change, step):
    data = listed(change(UNSIGNED))
    fails_at(step, data)
    assert status(verify_bundle(data), "attestations") is Status.NOT_CHECKED


def test_a_run_remade_with_new_keys_is_seen_only_from_elsewhere():
    data = pack(made(SECOND.view(), signer=KEY))
    assert verify_bundle(data).verdict == SELF_CONSISTENT
    fails_at("heads", data, heads=TOY.checkpoints)
    fails_at("trust", data, trusted=roster_keys(TOY))
    ours = {**roster_keys(SECOND), "our auditor": AUDITOR.public.raw.hex()}
    fails_at("trust", data, "auditor", trusted=ours)
    fails_at("plan", data, expect_plan="0" * 64)


def test_a_rewritten_end_is_seen_with_heads_held_by_others():
    data = pack(made(forge(TOY, TOY.view(), CLIENT, edit_last("close", state="DEAD"))))
    assert verify_bundle(data).ok
    fails_at("heads", data, heads=TOY.checkpoints)


def signed_anew(files: Files, *, key: SigningKey = KEY, change: Change = dict) -> bytes:
    """Return the bundle after `change`, with statements signed by `key`."""
    bare = change({p: d for p, d in files.items() if p not in (*STATEMENTS, MANIFEST)})
    about = subjects(signed(read_manifest({**bare, MANIFEST: manifest(bare)})))
    for path in STATEMENTS:
        one = open_statement(files[path])
        bare[path] = statement(one.predicate_type, one.predicate, about, signers=[key])
    return listed(bare)


def named(key: SigningKey, run: str = TOY.run) -> Change:
    return lambda files: {**files, "keys/trust.json": keys_text(run, TOY.roster, key.public)}


def test_statements_signed_by_a_stranger_fail_at_attestations():
    fails_at("attestations", signed_anew(FILES), "not signed by a key")
    party = TOY.identities[CLIENT].signing  # in the list, and no auditor
    assert status(verify_bundle(signed_anew(FILES, key=party)), "attestations") is (
        Status.NOT_CHECKED
    )


def test_a_forger_s_own_auditor_is_seen_only_with_trust():
    data = signed_anew(FILES, change=named(KEY))
    assert verify_bundle(data).ok
    trusted = {**roster_keys(TOY), "our auditor": AUDITOR.public.raw.hex()}
    fails_at("trust", data, "auditor", trusted=trusted)
    assert status(verify_bundle(DATA, trusted=trusted), "trust") is Status.OK


def test_o9_a_stale_key_fails_at_attestations():
    def stale(files: Files) -> Files:
        document = json.loads(files["keys/trust.json"])
        for known in document["keys"]:
            if known["role"] == "auditor":
                known["run"] = SECOND.run
        return {**files, "keys/trust.json": canonical(document)}

    fails_at("attestations", signed_anew(FILES, key=AUDITOR, change=stale), "another run")
    # All of them of another run: consistent in itself, and not this run's.
    fails_at("trust", signed_anew(FILES, key=AUDITOR, change=named(AUDITOR, SECOND.run)))


def test_statements_of_another_bundle_fail_at_attestations():
    theirs = made(SECOND.view())
    found = {**FILES, **{path: theirs[path] for path in STATEMENTS}}
    fails_at("attestations", listed(found), "other files")


@pytest.mark.parametrize("path", STATEMENTS)
def test_a_statement_that_was_taken_out_fails_at_attestations(path):
    fails_at("attestations", listed({p: d for p, d in FILES.items() if p != path}), "taken out")


def test_a_statement_under_another_name_fails_at_attestations():
    """Signatures cover no path, and whoever lists the files anew chooses it."""
    one, two, _ = STATEMENTS
    for moved in (
        {one: FILES[two], two: FILES[one]},
        {"attestations/copy.dsse.json": FILES[one]},
        {f"attestations/leakage-audit.{CLIENT}.dsse.json": FILES[one]},  # who did not sign it
        {"attestations/leakage-audit.auditor.dsse.json": FILES[one]},
    ):
        fails_at("attestations", listed({**FILES, **moved}), "under another name")


@pytest.mark.parametrize("path", STATEMENTS)
def test_a_changed_statement_fails_at_attestations(path):
    one = open_statement(FILES[path]).envelope
    body = json.loads(one.body)
    body["predicate"]["more"] = "fine"
    for made_up in (
        Signed(PAYLOAD_TYPE, canonical(body), one.signatures),
        Signed("text/plain", one.body, one.signatures),
        Signed(PAYLOAD_TYPE, one.body, ()),
        Signed(PAYLOAD_TYPE, one.body, (*one.signatures, one.signatures[0])),
        sign("text/plain", one.body, [AUDITOR]),
        sign(PAYLOAD_TYPE, canonical({**body, "predicateType": "https://x.example"}), [AUDITOR]),
        sign(PAYLOAD_TYPE, canonical({**body, "_type": "https://x.example"}), [AUDITOR]),
        sign(PAYLOAD_TYPE, canonical({**body, "more": 1}), [AUDITOR]),
        sign(PAYLOAD_TYPE, json.dumps(body).encode(), [AUDITOR]),
    ):
        fails_at("attestations", listed({**FILES, path: made_up.text()}))
    fails_at("attestations", listed({**FILES, path: b"{}"}), "one form")


@pytest.mark.parametrize("path", STATEMENTS)
def test_an_auditor_who_signs_what_is_not_so_fails_at_statements(path):
    one = open_statement(FILES[path])
    kind = PREDICATES[one.predicate_type]
    lies = {
        "leakage-audit": {"evidence": "fine"},
        "svr": {"properties": [*one.predicate["properties"], "SECURE_FGL_HEADS"]}
        if kind == "svr"
        else {},
        "test-result": {"result": "PASSED", "warnedTests": []},
    }
    lie = {**one.predicate, **lies[kind]}
    assert lie != one.predicate
    found = statement(one.predicate_type, lie, one.subjects, signers=[AUDITOR])
    fails_at("statements", listed({**FILES, path: found}), kind)


@pytest.mark.parametrize("time", ["2026-01-02T03:04:05Z", "2026-01-02", "yesterday", 7, None])
def test_o29_a_statement_that_tells_the_hour_fails_at_statements(time):
    one = open_statement(FILES["attestations/svr.dsse.json"])
    told = {**one.predicate, "timeCreated": time}
    found = statement(one.predicate_type, told, one.subjects, signers=[AUDITOR])
    fails_at("statements", listed({**FILES, "attestations/svr.dsse.json": found}))


def test_a_party_may_sign_the_same_statement_beside_the_auditor():
    one = open_statement(FILES[STATEMENTS[0]])
    key = TOY.identities[CLIENT].signing
    theirs = statement(LEAKAGE_AUDIT, one.predicate, one.subjects, signers=[key])
    data = listed({**FILES, f"attestations/leakage-audit.{CLIENT}.dsse.json": theirs})
    found = verify_bundle(data)
    assert found.ok, found.failed
    assert "4 statements" in next(s.detail for s in found.steps if s.name == "attestations")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"more": 1},
        {"run": 1},
        {"keys": {}},
        {"keys": [None]},
        {"keys": [{"key": "ab", "name": "a", "role": "client", "run": "r"}]},
        {"keys": [{"key": "AB" * 32, "name": "a", "role": "client", "run": "r"}]},
        {"keys": [{"key": "ab" * 32, "name": "a", "role": "king", "run": "r"}]},
    ],
)
def test_a_key_list_in_another_form_fails_at_attestations(change):
    text = canonical({**json.loads(FILES["keys/trust.json"]), **change})
    fails_at("attestations", listed(changed(FILES, keys__trust_json=text)))
    keys = json.loads(FILES["keys/trust.json"])
    twice = canonical({**keys, "keys": [*keys["keys"], keys["keys"][0]]})
    turned = canonical({**keys, "keys": keys["keys"][::-1]})
    for text in (twice, turned, b"{"):
        fails_at("attestations", listed(changed(FILES, keys__trust_json=text)))


def test_an_edited_paper_beside_the_report_is_seen_by_the_report():
    report = replace(TOY.view(), result_text=TOY.view().result_text + b"\n")
    found = changed(UNSIGNED, result_json=report.result_text)
    fails_at("report", listed(found))
