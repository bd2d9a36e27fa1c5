"""Sides are handed over, gathered and verified; what others hand over is hostile input."""

from __future__ import annotations

import fcntl
import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from audits.bundle.archive import pack, unpack
from audits.bundle.hand_over import gather, hand_over, read_side
from audits.evidence.verify import verify
from audits.report.build import build_report
from crypto.signing import canonical
from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError
from secure_fgl.store.bundles import verify_path, write_bundle
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.store.sides.party_side import place_of
from tests.audits.party_tools import Federation, play
from tests.audits.test_bundle import by_hand
from tests.audits.toy_run import AGGREGATOR, FIVE
from tests.secure_fgl.cli_tools import invoke

MINE, OTHER = FIVE[0], FIVE[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return play(tmp_path_factory.mktemp("parties"), "masks")


@pytest.fixture(scope="module")
def sides(made: Federation) -> dict[str, bytes]:
    return {name: hand_over(Run(folder).view()) for name, folder in made.folders.items()}


def remade(data: bytes, **changes: bytes | None) -> bytes:
    """Return a side with files changed, added or dropped and listed anew: what a forger does."""
    files = unpack(data)
    facts = json.loads(files.pop("hand-over.json"))
    for name, content in changes.items():
        path = name.replace("__", "/").replace("_dot_", ".")
        if content is None:
            files.pop(path)
        else:
            files[path] = content
    facts["files"] = {path: _sha(content) for path, content in files.items()}
    return pack({**files, "hand-over.json": canonical(facts)})


def _sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_a_side_holds_its_own_and_nothing_else(
    made: Federation, sides: dict[str, bytes], tmp_path: Path
) -> None:
    for name, data in sides.items():
        files = set(unpack(data)) - {"hand-over.json"}
        agreed = {"charter.json", "plan.json", "policy.json", "roster.json", "config.yaml"}
        own = {f"ledger/{name}.jsonl", f"heads/{name}.checkpoint"}
        result = {"result.json", "metrics.jsonl", "checkpoints.json"}
        assert files == agreed | own | (result if name == AGGREGATOR else set())
        for secret in (b"5ec2e7", b"kept state", str(made.folders[name]).encode(), b"/srv/x"):
            assert secret not in data
        assert (made.run(name) / "private" / "x").exists()  # there was something
        assert data == hand_over(Run(made.folders[name]).view())  # the same side, the same bytes
    first, _ = write_hand_over(made.folders[MINE], tmp_path / "a.zip")
    assert first.read_bytes() == sides[MINE]
    with pytest.raises(UsageError, match="exists already"):
        write_hand_over(made.folders[MINE], tmp_path / "a.zip")


def test_neither_hand_over_nor_bundle_holds_a_key_a_seed_or_a_path(
    made: Federation, tmp_path: Path
) -> None:
    """Nobody searches them: they are made of listed files alone."""
    files = [tmp_path / f"{name}.zip" for name in made.folders]
    for file, folder in zip(files, made.folders.values(), strict=True):
        write_hand_over(folder, file)
    gather_files(files, tmp_path / "run")
    files.append(write_bundle(tmp_path / "run"))
    seed = json.loads((made.folders[MINE] / "identity.json").read_text())["seed"]
    own = [made.folders[MINE] / "keys" / "state", made.run(MINE) / "private" / "x"]
    secrets = [seed.encode(), bytes.fromhex(seed), *(path.read_bytes() for path in own)]
    secrets += [str(path).encode() for path in (*made.folders.values(), tmp_path)]
    for file in files:
        for name, data in unpack(file.read_bytes()).items():
            assert not any(secret in data for secret in secrets), (file.name, name)
        assert not {"identity.json", "keys/state", "private/x"} & set(unpack(file.read_bytes()))


def test_gathered_sides_are_a_run_that_verifies_reports_and_bundles(
    made: Federation, tmp_path: Path
) -> None:
    files = []
    for name, folder in made.folders.items():
        shown = invoke("site", "hand-over", folder, "--out", tmp_path / f"{name}.zip")
        assert shown.exit_code == 0 and "nothing was changed" in shown.stderr, shown.output
        files.append(tmp_path / f"{name}.zip")
    run = tmp_path / "run"
    shown = invoke("audit", "gather", *files, "--out", run, "--format", "json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["missing"] == []
    assert invoke("audit", "verify", run).exit_code == 0
    heads = tmp_path / "heads.json"
    heads.write_text(json.dumps(made.toy.checkpoints))
    shown = invoke("audit", "verify", run, "--heads", heads, "--format", "json")
    assert json.loads(shown.stdout)["verdict"] == "verified against heads held by others"
    result = next(s for s in Run(run).verify().steps if s.name == "result")
    assert result.detail.startswith("digests of 2 models")  # no model is there
    report = build_report(Run(run).view())
    assert not any("SIMULATION" in note for note in report.notes)
    assert not any("one process" in text for text in report.limits)
    assert {p.name: p.organisation for p in report.parties} == made.charter.organisations
    assert invoke("audit", "report", run).exit_code in (0, 3)
    assert "Organisation client-1" in (run / "report" / "report.html").read_text()
    bundle = write_bundle(run)
    assert "charter.json" in unpack(bundle.read_bytes())
    found = verify_path(bundle)
    assert found.ok, found.failed
    assert next(s for s in found.steps if s.name == "approvals").status == "OK"
    _checked_by_hand(bundle, len(made.folders))
    assert (
        invoke("audit", "export", run, "--to", "art30-csv", "--out", tmp_path / "x.csv").exit_code
        == 0
    )
    (run / "charter.json").unlink()
    assert Run(run).verify().verdict == "FAILED at approvals"


def _checked_by_hand(bundle: Path, parties: int) -> None:
    """Follow the bundle's own page: every party's signature under the charter, with OpenSSL."""
    page = unpack(bundle.read_bytes())["VERIFY.md"].decode()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for block in (blocks[0], blocks[2]):  # unpacks, and writes every party's key
        assert by_hand(block, bundle.parent).returncode == 0
    done = by_hand(blocks[3], bundle.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Verified Successfully") == parties
    charter = bundle.parent / "bundle" / "charter.json"
    charter.write_bytes(
        charter.read_bytes().replace(b"Organisation client-1", b"Organisation client-9")
    )
    assert by_hand(blocks[3], bundle.parent).returncode != 0  # the control


def test_commands_take_a_partys_folder(made: Federation, tmp_path: Path) -> None:
    folder = made.folders[MINE]
    shown = invoke("audit", "verify", folder, "--run", made.toy.run, "--format", "json")
    told = json.loads(shown.stdout)
    assert shown.exit_code == 0 and told["verdict"] == "own side holds"
    assert invoke("audit", "verify", made.run(MINE)).exit_code == 0
    assert invoke("audit", "verify", folder, "--run", "00" * 16).exit_code == 2
    assert invoke("audit", "account", folder).exit_code == 0
    assert invoke("audit", "account", made.folders[AGGREGATOR]).exit_code == 2
    assert invoke("audit", "report", folder, "--out", tmp_path / "report").exit_code in (0, 3)
    shown = invoke("audit", "bundle", folder, "--out", tmp_path / "bundle.zip")
    assert shown.exit_code == 2 and "site hand-over" in shown.stderr
    shown = invoke("site", "hand-over", tmp_path, "--out", tmp_path / "x.zip")
    assert shown.exit_code == 2


def test_who_is_missing_is_named_and_the_whole_does_not_verify(
    sides: dict[str, bytes], tmp_path: Path
) -> None:
    files = []
    for name in (AGGREGATOR, MINE):
        (tmp_path / f"{name}.zip").write_bytes(sides[name])
        files.append(tmp_path / f"{name}.zip")
    shown = invoke("audit", "gather", *files, "--out", tmp_path / "run")
    assert shown.exit_code == 0 and "MISSING: client-2, client-3" in shown.stderr
    found = Run(tmp_path / "run").verify()
    assert found.verdict == "FAILED at roster" and "client-2" in str(found.failed)
    with pytest.raises(UsageError, match="not empty"):
        gather_files(files, tmp_path / "run")


def test_nothing_is_handed_over_while_a_process_is_at_work(
    made: Federation, tmp_path: Path
) -> None:
    lock = made.place(OTHER) / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="at work"):
            write_hand_over(made.folders[OTHER], tmp_path / "x.zip")
    assert write_hand_over(made.folders[OTHER], tmp_path / "x.zip")[1].ok  # the control


def test_a_broken_side_is_handed_over_and_says_so(made: Federation, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(made.folders[OTHER], tmp_path / "party"))
    ledger = place_of(folder) / "run" / "ledger" / f"{OTHER}.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-50])
    shown = invoke("site", "hand-over", folder, "--out", tmp_path / "x.zip")
    assert shown.exit_code == 5 and "FAILED at chain" in shown.stderr
    assert (tmp_path / "x.zip").is_file()


# --- contradictions -----------------------------------------------------------------------------


def test_two_files_that_contradict_each_other_are_refused(
    made: Federation, sides: dict[str, bytes], tmp_path: Path
) -> None:
    another = play(tmp_path / "another", "masks")  # the same plan, other keys: another run
    foreign = hand_over(Run(another.folders[OTHER]).view())
    ledger = unpack(sides[MINE])[f"ledger/{MINE}.jsonl"]
    told = f"ledger__{MINE}_dot_jsonl"
    forked = remade(sides[MINE], **{told: ledger[:-50] + b"x" * 49 + b"\n"})
    drawn = remade(sides[OTHER], charter_dot_json=unpack(sides[OTHER])["charter.json"] + b" ")
    tuned = remade(sides[OTHER], config_dot_yaml=b"seed: 9\n")
    for second, word in (
        (foreign, "charter.json"),
        (drawn, "charter.json"),
        (tuned, "config.yaml"),
    ):
        with pytest.raises(EvidenceError, match=f"a and b contradict each other: another {word}"):
            gather([("a", sides[MINE]), ("b", second)])
    with pytest.raises(EvidenceError, match=f"a and b contradict each other about {MINE}"):
        gather([("a", sides[MINE]), ("b", forked)])
    assert gather([("a", sides[MINE]), ("b", sides[MINE])]).parties == (MINE,)  # the control


def test_no_file_of_one_party_takes_the_place_of_anothers(sides: dict[str, bytes]) -> None:
    """A client `a` with budgets of the unit graph, and a client `a.graph`, name one file."""
    twin = f"{MINE}.graph"

    def renamed(data: bytes, party: str, budget: bytes) -> bytes:
        files = {path.replace(OTHER, twin): part for path, part in unpack(data).items()}
        facts = json.loads(files.pop("hand-over.json"))
        files["roster.json"] = files["roster.json"].replace(
            f'"{OTHER}"'.encode(), f'"{twin}"'.encode()
        )
        files |= {f"budgets/{twin}.checkpoint": budget} if budget else {}
        listed = {path: _sha(part) for path, part in files.items()}
        return pack(
            {**files, "hand-over.json": canonical({**facts, "party": party, "files": listed})}
        )

    for budget in (b"a", b""):
        given = [
            ("a", renamed(sides[MINE], MINE, budget)),
            ("b", renamed(sides[OTHER], twin, b"b")),
        ]
        if budget:
            with pytest.raises(EvidenceError, match="b holds a file that another one holds"):
                gather(given)
        else:  # the control
            assert gather(given).parties == (MINE, twin)


def test_a_party_that_came_back_may_hand_over_once_more(sides: dict[str, bytes]) -> None:
    """What it handed over while its session was not ended must be the beginning of the later."""
    ledger = unpack(sides[MINE])[f"ledger/{MINE}.jsonl"]
    lines = ledger.splitlines(keepends=True)
    told, head = f"ledger__{MINE}_dot_jsonl", f"heads__{MINE}_dot_checkpoint"
    early = remade(sides[MINE], **{told: b"".join(lines[:4]), head: None})
    for pair in (("a", early), ("b", sides[MINE])), (("b", sides[MINE]), ("a", early)):
        assert gather(list(pair)).files[f"ledger/{MINE}.jsonl"] == ledger
    other = remade(sides[MINE], **{told: b"".join(lines[1:4]), head: None})
    ended = remade(sides[MINE], **{told: b"".join(lines[:4])})  # short, and with the head of all
    for wrong in (other, ended):
        with pytest.raises(EvidenceError, match="contradict"):
            gather([("a", wrong), ("b", sides[MINE])])


# --- hostile files ------------------------------------------------------------------------------


def _zip(*members: tuple[str, bytes], mode: int = 0o100600) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, mode << 16
            archive.writestr(info, content)
    return raw.getvalue()


def _twice(data: bytes) -> bytes:
    with pytest.warns(UserWarning, match="Duplicate name"):
        return _zip(*_members(data), _members(data)[0])


def _members(data: bytes) -> list[tuple[str, bytes]]:
    return sorted(unpack(data).items())


@pytest.mark.parametrize(
    "kind",
    [
        *("traversal", "absolute", "link", "twice", "compressed", "trailing", "cut", "empty"),
        *("another's ledger", "a model", "a result", "a key", "no ledger", "markup", "unlisted"),
        *("stranger", "other run", "list of lists", "no files"),
    ],
)
def test_what_is_no_side_is_refused_and_nothing_is_written(
    kind: str, sides: dict[str, bytes], tmp_path: Path
) -> None:
    good = sides[MINE]
    files = unpack(good)
    facts = json.loads(files["hand-over.json"])

    def said(**changes: object) -> bytes:
        return pack({**files, "hand-over.json": canonical({**facts, **changes})})

    bad = {
        "traversal": lambda: _zip(*_members(good), ("../../evil", b"x")),
        "absolute": lambda: _zip(*_members(good), ("/tmp/evil", b"x")),
        "link": lambda: _zip(*_members(good), ("ledger/x.jsonl", b"/etc/passwd"), mode=0o120777),
        "twice": lambda: _twice(good),
        "compressed": lambda: _compressed(files),
        "trailing": lambda: good + b"x",
        "cut": lambda: good[:-100],
        "empty": lambda: b"",
        "another's ledger": lambda: remade(good, ledger__other_dot_jsonl=b"{}\n"),
        "a model": lambda: remade(good, checkpoints__final_dot_npz=b"x"),
        "a result": lambda: remade(good, result_dot_json=b"{}"),
        "a key": lambda: remade(good, identity_dot_json=b"{}"),
        "no ledger": lambda: remade(good, **{f"ledger__{MINE}_dot_jsonl": None}),
        "markup": lambda: remade(
            good, roster_dot_json=files["roster.json"].replace(b'"client-1"', b'"<b>x</b>"')
        ),
        "unlisted": lambda: pack({**files, "plan.json": b"{}"}),
        "stranger": lambda: said(party="somebody"),
        "other run": lambda: said(run="00" * 16),
        "list of lists": lambda: said(party=[MINE]),
        "no files": lambda: said(files={}),
    }[kind]()
    (tmp_path / "x.zip").write_bytes(bad)
    with pytest.raises(EvidenceError) as caught:
        gather_files([tmp_path / "x.zip"], tmp_path / "run")
    assert caught.value.step == "hand-over"
    assert not (tmp_path / "run").exists() and not (tmp_path.parent / "evil").exists()
    assert read_side(good).party == MINE  # the control


def _compressed(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(name, files[name])
    return raw.getvalue()


def test_names_of_a_charter_are_escaped_in_reports(made: Federation, tmp_path: Path) -> None:
    """An organisation's name is others' text. Only a charter that all signed is printed at all."""
    from dataclasses import replace

    from audits.formats import render

    evil = "<script>alert(1)</script>"
    view = Run(made.folders[MINE]).view()
    document = json.loads(view.charter_text)
    document["organisations"][OTHER] = evil
    unsigned = build_report(replace(view, charter_text=canonical(document)))
    assert all(party.organisation == "" for party in unsigned.parties)
    names = made.charter.organisations
    charter = replace(made.charter, organisations={**names, OTHER: evil}, signatures={})
    for name, identity in made.toy.identities.items():
        charter = charter.signed_by(name, identity.signing)
    signed = build_report(replace(view, charter_text=charter.encode()))
    assert evil in {party.organisation for party in signed.parties}
    for name, data in render(signed, ("html", "md")).items():
        assert evil.encode() not in data, name
    ugly = replace(made.charter, organisations={**names, OTHER: "a\nb"}, signatures={})
    for name, identity in made.toy.identities.items():
        ugly = ugly.signed_by(name, identity.signing)
    assert verify(replace(view, charter_text=ugly.encode())).verdict == "FAILED at approvals"
