"""After a run between organisations: the model that each party has, and what it destroys again."""

from __future__ import annotations

import io
import json
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.checks.parties import KINDS, Forgotten, note_of
from audits.evidence.run_files import policy_text
from audits.evidence.steps import Status, Step
from crypto.signing import canonical
from protocols.errors import EvidenceError, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.policy.policy import Kept, PrivacyPolicy, Release
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Roster, run_id
from secure_fgl import load_model
from secure_fgl.charters.party import load_identity, new_identity
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.model_file import model_bytes
from secure_fgl.predicting import answers
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.sites import stopping
from secure_fgl.sites.process import PartyProcess, conduct, open_process
from secure_fgl.store import captures
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides import forgetting, release
from secure_fgl.store.sides.forgetting import Destroyed, forget, sweep_runs
from secure_fgl.store.sides.hand_overs import gather_files, write_hand_over
from secure_fgl.store.sides.own_model import own_model
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.store.sides.release import HeldBack
from tests import forked
from tests.audits.attack_tools import LEAK, attacked, row
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble, banks, side

CONFIG = banks(policy="he", rounds=2).model_copy(update={"seed": 6})
KEPT = {Role.CLIENT: Kept(models=60, ledgers=400), Role.AGGREGATOR: Kept(models=60)}
HELD = PrivacyPolicy.preset("he").model_copy(
    update={"name": "held", "release": Release(requires=("A10", "A05")), "retention": KEPT}
)
NAME = "client-1"
ATTACKS = HELD.release.requires if HELD.release is not None else ()
pytestmark = pytest.mark.usefixtures("_state")


class Direct:
    """Carries envelopes between the sessions of one process, each with a folder of its own."""

    def __init__(self, processes: dict[str, PartyProcess]) -> None:
        self.processes = processes

    def exchange(self, deliveries: Any) -> Any:
        return [a for d in deliveries for a in self.processes[d.to].receive(d.data)]


def play(parties: Parties) -> None:
    """Let all parties play their run to its end."""
    others = {name: open_process(parties.kit(name)) for name in parties.others}
    conduct(open_process(parties.kit(AGGREGATOR_NAME)), Direct(others))
    for process in others.values():
        process.close()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    """A run whose first round is better than its second; every client waived what holds it back."""
    base = tmp_path_factory.mktemp("models")
    (base / "policy.yaml").write_text(json.dumps(HELD.document()))
    config = CONFIG.model_copy(update={"policy": str(base / "policy.yaml")})
    with pytest.MonkeyPatch.context() as patch:
        forked.use(patch)
        patch.setenv("SECURE_FGL_STATE", str(base / "keys"))
        parties = assemble(config, base)
        play(parties)
    signed = [
        waived(folder(parties, name), attack)
        for name in parties.charter.plan.clients
        for attack in ATTACKS
    ]
    for place in parties.folders.values():
        for file in signed:
            if file.parent.parent != place_of(place):
                (place_of(place) / "waivers").mkdir(exist_ok=True)
                shutil.copy(file, place_of(place) / "waivers")
    return parties


def waived(place: Path, attack: str, until: str | None = None) -> Path:
    """Let a client sign its waiver for an attack."""
    last = until or (date.today() + timedelta(days=30)).isoformat()
    said = invoke(
        "site", "waive", place, "--attack", attack, "--owner", "M. Bloch", "--until", last,
        "--reason", "nobody is asked about members", "--format", "json",
    )  # fmt: skip
    assert said.exit_code == 0, said.stderr
    return Path(json.loads(said.stdout)["file"])


@pytest.fixture
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "no keys here"))


def folder(parties: Parties, name: str) -> Path:
    return parties.folders[name]


def copied(parties: Parties, name: str, to: Path) -> Path:
    return Path(shutil.copytree(folder(parties, name), to / name))


def entries(place: Path) -> list[dict[str, Any]]:
    data = (side(place) / "ledger" / f"{place.name}.jsonl").read_bytes()
    return [entry for entry, _ in read_lines(data)]


def step(place: Path, name: str) -> Step:
    return next(found for found in Run(place).verify().steps if found.name == name)


def test_each_party_has_the_model_that_its_role_is_given(played: Parties, tmp_path: Path) -> None:
    parties = played
    stated = entries(folder(parties, AGGREGATOR_NAME))[-1]["result"]
    assert stated["best"] != stated["model"]
    for which, digest in (("best", stated["best"]), ("final", stated["model"])):
        for name in ("client-1", AGGREGATOR_NAME):
            out = tmp_path / f"{which}-{name}.npz"
            said = invoke(
                "site", "model", folder(parties, name), "--run", parties.charter.run,
                "--which", which, "--out", out, "--format", "json",
            )  # fmt: skip
            assert said.exit_code == 0, said.stderr
            found = json.loads(said.stdout)
            assert found["weights_sha256"] == digest  # of a shared model all have the same
            assert load_model(out).facts["weights_sha256"] == digest
            assert out.stat().st_mode & 0o777 == 0o600
    authority = folder(parties, "key-authority")
    said = invoke("site", "model", authority, "--out", tmp_path / "none.npz")
    assert said.exit_code == 2 and "key_authority: models go to clients" in said.stderr
    assert not (tmp_path / "none.npz").exists() and not (side(authority) / "models").exists()
    wrong = invoke("site", "model", authority, "--out", tmp_path / "n.npz", "--run", "ab" * 16)
    assert wrong.exit_code == 2 and "no such run" in wrong.stderr


def test_a_model_s_file_predicts_as_the_run_did(played: Parties, tmp_path: Path) -> None:
    parties = played
    prepared: Any = Federation.from_config(CONFIG).prepare()
    prepared.load()
    part = prepared.sites[0].about.args[0]
    name = parties.charter.plan.clients[0]
    trained = own_model(folder(parties, name))
    (tmp_path / "model.npz").write_bytes(model_bytes(trained))
    loaded = load_model(tmp_path / "model.npz")
    assert np.array_equal(answers(loaded, part, part.train), answers(trained, part, part.train))
    theirs = answers(own_model(folder(parties, AGGREGATOR_NAME)), part, part.train)
    assert np.array_equal(answers(loaded, part, part.train), theirs)
    assert loaded.facts == {**trained.facts} and loaded.spec == trained.spec


def test_a_ledger_names_its_client_s_model_and_another_one_fails(
    played: Parties, tmp_path: Path
) -> None:
    parties = played
    named = [e for e in entries(folder(parties, "client-1")) if e["kind"] == "model"]
    assert [e["piece"] for e in named] == ["model", "last"]
    assert not [e for e in entries(folder(parties, AGGREGATOR_NAME)) if e["kind"] == "model"]
    place = copied(parties, "client-1", tmp_path)
    assert step(place, "result").detail.startswith("2 models of client-1 as its ledger names")
    file = side(place) / "models" / "client-1" / "model"
    whole = file.read_bytes()
    for spoilt in (whole[:-1] + bytes([whole[-1] ^ 1]), file.with_name("last").read_bytes()):
        file.write_bytes(spoilt)
        assert Run(place).verify().verdict == "FAILED at result"
        said = invoke("site", "model", place, "--out", tmp_path / "spoilt.npz")
        assert said.exit_code == 5 and not (tmp_path / "spoilt.npz").exists()
    file.unlink()  # it is the client's own: to destroy it breaks no evidence
    file.with_name("last").unlink()
    assert Run(place).verify().verdict == "own side holds"


@pytest.mark.parametrize(
    "change",
    ["none of ours", "cut", "another shape", "a pickle", "another member", "sizes"],
)
def test_a_file_that_is_no_model_is_refused(change: str, played: Parties, tmp_path: Path) -> None:
    trained = own_model(folder(played, "client-1"))
    data = model_bytes(trained)
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    facts = json.loads(bytes(arrays["description"]))
    if change == "another shape":
        arrays["weights"] = arrays["weights"][:-1]
    if change == "a pickle":
        arrays["weights"] = np.array([object()], dtype=object)
    if change == "another member":
        facts["more"] = 1
    if change == "sizes":  # nothing is made of them before they are compared
        facts["spec"]["features"] = 1 << 40
    arrays["description"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    made = io.BytesIO()
    np.savez(made, **arrays)
    written = {"none of ours": b"PK", "cut": data[:-9]}.get(change, made.getvalue())
    (tmp_path / "m.npz").write_bytes(written)
    with pytest.raises(UsageError, match="not a model's file of ours"):
        load_model(tmp_path / "m.npz")
    (tmp_path / "m.npz").write_bytes(npz_bytes(dict(np.load(io.BytesIO(data)))))
    assert load_model(tmp_path / "m.npz").facts["run"] == played.charter.run  # the control


# --- forgetting ---------------------------------------------------------------------------------


def test_o9_forgotten_captures_are_gone_and_signed(played: Parties, tmp_path: Path) -> None:
    parties = played
    place = copied(parties, "client-1", tmp_path)
    assert step(place, "captured").status is Status.OK
    control = copied(parties, "client-2", tmp_path)
    shutil.rmtree(side(control) / "captured")  # without a word, before its days are over
    assert Run(control).verify().verdict == "FAILED at captured"
    said = invoke("site", "forget", place, "--captures", "--run", parties.charter.run)
    assert said.exit_code == 0, said.stderr
    assert not (side(place) / "captured").exists()
    assert not (place / "keys" / "captures" / parties.charter.run).exists()
    found = Run(place).verify()
    assert found.verdict == "own side holds"
    told = step(place, "captured")
    assert told.status is Status.NOT_CHECKED and "client-1 destroyed its captures at" in told.detail
    assert own_model(place).facts["client"] == "client-1"  # nothing else is gone
    again = invoke("site", "forget", place, "--captures")
    assert again.exit_code == 0 and "Nothing was left" in again.stderr
    notes = side(place) / "forgotten" / "client-1.jsonl"
    assert len(notes.read_bytes().splitlines()) == 1

    whole = notes.read_bytes()
    for bad in (
        whole.replace(b'"captures"', b'"models"'),
        whole.replace(b"Z", b"Z", 1).replace(b'"at":"2', b'"at":"3'),
        whole + b"x",
        (folder(parties, "client-2") / "identity.json").read_bytes(),
    ):
        notes.write_bytes(bad)
        assert Run(place).verify().verdict == "FAILED at captured"
    notes.rename(notes.with_name("client-2.jsonl"))  # another party's note is none of this one's
    notes.with_name("client-2.jsonl").write_bytes(whole)
    assert Run(place).verify().verdict == "FAILED at captured"


def test_all_that_a_party_kept_is_destroyed_keys_first(
    played: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted between keys and pieces, it goes on; what is left meanwhile opens no more."""
    parties = played
    place = copied(parties, "client-1", tmp_path)
    me = load_identity(place)
    tags = place_of(place) / "tags.key"
    tags.write_text("ab" * 32)

    plain = Folder.remove_tree

    def interrupted(self: Folder, name: str) -> None:
        if self.path == side(place):
            raise KeyboardInterrupt
        plain(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove_tree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            forget(place, me, everything=True)
    assert (side(place) / "models" / "client-1" / "model").is_file()
    assert not list((place / "keys").rglob("*.key")) and not tags.exists()
    with pytest.raises(UsageError, match="locked, and its key is not here"):
        own_model(place)
    found = forget(place, me, everything=True)
    assert found.pieces > 0 and not (side(place) / "models").exists()
    assert Run(place).verify().verdict == "own side holds"
    said = invoke("site", "model", place, "--out", tmp_path / "none.npz")
    assert said.exit_code == 2 and "destroyed its captures and models and state" in said.stderr


def test_keys_that_are_not_the_run_s_destroy_nothing(played: Parties, tmp_path: Path) -> None:
    """A note under the next keys is no word of the run's party: its own evidence would break."""
    place = copied(played, "client-1", tmp_path)
    assert new_identity(tmp_path / "new", "client-1", Role.CLIENT)
    shutil.copy(tmp_path / "new" / "identity.json", place)
    said = invoke("site", "forget", place, "--all")
    assert said.exit_code == 2 and "renewed or made anew" in " ".join(said.stderr.split())
    assert step(place, "captured").status is Status.OK and list((place / "keys").rglob("*.key"))
    me, run = load_identity(place), played.charter.run  # the control: what would have been noted
    note = note_of(
        me.signing, Forgotten(("captures",), "2026-01-01T00:00:00Z"), run=run, party=NAME
    )
    Folder(side(place)).write(f"forgotten/{NAME}.jsonl", note)
    assert Run(place).verify().verdict == "FAILED at captured"


def test_what_sides_destroyed_is_handed_over_and_the_whole_still_verifies(
    played: Parties, tmp_path: Path
) -> None:
    parties = played
    places = {f.name: copied(parties, f.name, tmp_path) for f in parties.folders.values()}
    early, _ = write_hand_over(places["client-1"], tmp_path / "early.zip")
    for name in ("client-1", AGGREGATOR_NAME):
        forget(places[name], load_identity(places[name]), everything=True)
        assert Run(places[name]).verify().verdict == "own side holds"
    assert "models, all metrics" in step(places[AGGREGATOR_NAME], "result").detail
    with pytest.raises(UsageError, match="no shared model"):
        own_model(places[AGGREGATOR_NAME])
    handed = [write_hand_over(place, tmp_path / f"{n}.zip")[0] for n, place in places.items()]
    assert gather_files([early, *handed], tmp_path / "whole").missing == ()
    found = Run(tmp_path / "whole").verify()
    assert found.verdict == "self-consistent only", found.failed
    whole = invoke("site", "model", tmp_path / "whole", "--out", tmp_path / "n.npz")
    assert whole.exit_code == 2 and "holds no run" in whole.stderr
    assert step(tmp_path / "whole", "captured").detail.count("as it signed") == 2


def test_a_run_that_is_not_over_keeps_its_captures_unless_it_is_given_up(
    tmp_path: Path,
) -> None:
    parties = assemble(banks(), tmp_path / "parties")
    process = open_process(parties.kit(NAME))
    assert process.kit.me.party.role is Role.CLIENT
    place, me = parties.folders[NAME], process.kit.me
    with pytest.raises(UsageError, match="at work"):
        forget(place, me, everything=True)
    process.files.close()  # what the system does for a dead process
    with pytest.raises(UsageError, match="not over"):
        forget(place, me)
    assert forget(place, me, everything=True).note.what == ("captures", "models", "state")
    assert not list((place / "keys").rglob("*.key"))
    with pytest.raises(UsageError, match="cannot be resumed"):
        open_process(parties.kit(NAME))
    assert Run(place).verify().verdict == "own side holds, unsigned"
    said = invoke("site", "forget", place)
    assert said.exit_code == 2 and "--captures" in said.stderr


# --- what a policy keeps no longer --------------------------------------------------------------


def swept(place: Path, days: int) -> list[Any]:
    """Sweep as on a later day; return what was destroyed, or why that failed."""
    later, me = date.today() + timedelta(days=days), load_identity(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captures, "today", lambda: later)
        found = sweep_runs(place, lambda: me, name=me.party.name, day=lambda: later)
        return [one.note.what if isinstance(one, Destroyed) else one for _, one in found]


def test_what_is_over_by_the_policy_is_swept_keys_first_and_signed(
    played: Parties, tmp_path: Path
) -> None:
    place = copied(played, NAME, tmp_path)
    whole = sorted(side(place).rglob("*"))
    said = invoke("site", "sweep", place)
    assert said.exit_code == 0 and "Nothing is over" in said.stderr
    assert sorted(side(place).rglob("*")) == whole  # the control: today nothing is over
    assert swept(place, 31) == [("captures",)] and swept(place, 31) == []
    assert not (side(place) / "captured").exists()
    assert own_model(place).facts["client"] == NAME
    assert swept(place, 61) == [("models",)] and swept(place, 61) == []
    assert not list((place / "keys").rglob("*.key"))
    assert Run(place).verify().verdict == "own side holds"
    assert "destroyed its models" in step(place, "captured").detail
    assert swept(place, 400) == []
    assert swept(place, 401) == [KINDS] and swept(place, 401) == []
    left = {str(p.relative_to(side(place))) for p in side(place).rglob("*") if p.is_file()}
    stay = {"config.yaml", "plan.json", "policy.json", "roster.json"}
    assert left == {*stay, f"forgotten/{NAME}.jsonl"}
    found = Run(place).verify()
    assert found.verdict == "own side destroyed, as signed" and found.ok
    assert "destroyed its ledger at" in step(place, "files").detail
    told = invoke("audit", "verify", place)
    assert told.exit_code == 0 and "own side destroyed, as signed" in told.stdout
    told = invoke("site", "hand-over", place, "--out", tmp_path / "x.zip")
    assert told.exit_code == 5 and not (tmp_path / "x.zip").exists()
    (side(place) / "forgotten" / f"{NAME}.jsonl").unlink()  # the control: without that word
    assert Run(place).verify().verdict == "FAILED at files"
    (error,) = swept(place, 401)
    assert isinstance(error, EvidenceError)  # and nobody signs it now
    authority = copied(played, "key-authority", tmp_path)
    assert swept(authority, 4000) == []  # the policy names no days for its role


def test_a_sweep_that_was_interrupted_goes_on_and_signs_what_is_so(
    played: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = copied(played, NAME, tmp_path)
    notes, plain = side(place) / "forgotten" / f"{NAME}.jsonl", forgetting._end_evidence

    def killed(run: Run) -> None:
        if not first:
            plain(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(forgetting, "_end_evidence", killed)
    for first in (True, False):  # before the ledger goes, and after
        with pytest.raises(KeyboardInterrupt):
            swept(place, 401)
        assert b"ledger" not in notes.read_bytes().split(b"signature")[0]  # it may be there yet
        assert (side(place) / "ledger").exists() is first
        assert Run(place).verify().verdict == ("own side holds" if first else "FAILED at files")
    monkeypatch.setattr(forgetting, "_end_evidence", plain)
    word = side(place).parent / "destroying"
    kept = word.read_bytes()
    word.unlink()  # the control: who takes a ledger away without the party's word gets no note
    assert isinstance(swept(place, 401)[0], EvidenceError)
    me = load_identity(copied(played, "client-2", tmp_path))
    note = Forgotten(KINDS, "2030-01-01T00:00:00Z")
    word.write_bytes(note_of(me.signing, note, run=played.charter.run, party=NAME))
    before = notes.read_bytes()
    assert isinstance(swept(place, 401)[0], EvidenceError) and notes.read_bytes() == before
    word.write_bytes(kept)
    assert swept(place, 401) == [KINDS] and not word.exists() and swept(place, 401) == []
    assert Run(place).verify().verdict == "own side destroyed, as signed"


def test_a_run_that_was_swept_does_not_make_each_stop_fail(played: Parties, tmp_path: Path) -> None:
    place = copied(played, NAME, tmp_path)
    assert swept(place, 401) == [KINDS]
    assert stopping.stop(place, seconds=5.0) == [played.charter.run]
    shutil.rmtree(side(place) / "forgotten")  # the control: nobody said that it was destroyed
    with pytest.raises(SecureFglError):
        stopping.stop(place, seconds=5.0)


def test_a_sweep_believes_no_policy_but_the_run_s(played: Parties, tmp_path: Path) -> None:
    place = copied(played, NAME, tmp_path)
    short = HELD.model_copy(update={"retention": {Role.CLIENT: Kept(models=1, ledgers=30)}})
    (side(place) / "policy.json").write_bytes(policy_text(short).encode())
    (error,) = swept(place, 59)
    assert isinstance(error, EvidenceError) and "does not follow" in str(error)
    assert (side(place) / "models" / NAME / "model").is_file()


def destroyed(played: Parties, name: str, to: Path) -> Path:
    """A party's folder whose ledger somebody removed, beside a note that its keys signed."""
    place = copied(played, name, to)
    me, run = load_identity(place), played.charter.run
    for gone in ("ledger", "heads", "captured", "models", "checkpoints", "budgets"):
        shutil.rmtree(side(place) / gone, ignore_errors=True)
    for gone in ("result.json", "metrics.jsonl", "exchanges.txt"):
        (side(place) / gone).unlink(missing_ok=True)
    note = note_of(me.signing, Forgotten(KINDS, "2030-01-01T00:00:00Z"), run=run, party=name)
    Folder(side(place)).write(f"forgotten/{name}.jsonl", note)
    return place


def test_a_ledger_that_is_missing_is_not_passed_off_as_destroyed(
    played: Parties, tmp_path: Path
) -> None:
    place = destroyed(played, NAME, tmp_path)
    assert Run(place).verify().verdict == "own side destroyed, as signed"  # the control
    # Who holds no key of the party's writes a roster with a key of its own, and signs with that.
    assert new_identity(tmp_path / "new", NAME, Role.CLIENT)
    me = load_identity(tmp_path / "new")
    charter = played.charter
    others = [charter.roster.party(p["name"]) for p in charter.roster.document()]
    forged = Roster([me.party, *(party for party in others if party.name != NAME)])
    named = run_id(charter.nonce, forged, charter.plan.digest, charter.policy.digest)
    file, note = side(place) / "roster.json", Forgotten(KINDS, "2030-01-01T00:00:00Z")
    document = json.loads(file.read_bytes())
    for run in (charter.run, named):  # under the run's name, and under the one that follows
        told = {**document, "run": run, "parties": forged.document()}
        file.write_text(json.dumps(told, indent=2, sort_keys=True) + "\n")
        signed = note_of(me.signing, note, run=run, party=NAME)
        Folder(side(place)).write(f"forgotten/{NAME}.jsonl", signed)
        assert Run(place).verify().verdict == "FAILED at files"
        assert invoke("audit", "verify", place).exit_code == 5
    for name in ("key-authority", AGGREGATOR_NAME):  # its policy keeps their ledgers for ever
        kept = destroyed(played, name, tmp_path)
        assert "keeps it for ever" in step(kept, "files").detail
        assert Run(kept).verify().verdict == "FAILED at files"
    assert invoke("audit", "verify", kept, "--expect-plan", "0" * 64).exit_code == 5


def dated(place: Path, day: str) -> None:
    """Let the last entry of a ledger be of another day."""
    file = side(place) / "ledger" / f"{NAME}.jsonl"
    *lines, last = file.read_bytes().splitlines(keepends=True)
    told = json.loads(last)
    told["time"] = f"{day}T00:00:00Z"
    file.write_bytes(b"".join([*lines, canonical(told) + b"\n"]))


def test_a_copy_of_a_run_s_folder_says_nothing_of_the_run(played: Parties, tmp_path: Path) -> None:
    """Its ledger is older, and keys go by the run's name: the run itself is to keep its own."""
    place, run = copied(played, NAME, tmp_path), played.charter.run
    stray, kept = place / "runs" / ("0" * 32), sorted((place / "keys").rglob("*"))
    dated(place, "2020-01-01")
    shutil.copytree(place / "runs" / run, stray)
    shutil.copytree(folder(played, NAME) / "runs" / run, place / "runs" / run, dirs_exist_ok=True)
    (error,) = swept(place, 1)
    assert isinstance(error, EvidenceError) and "is not the folder of the run" in str(error)
    assert sorted((place / "keys").rglob("*")) == kept and own_model(place, run=run)
    said = invoke("site", "forget", place, "--all", "--run", stray.name)
    assert said.exit_code == 5 and sorted((place / "keys").rglob("*")) == kept
    shutil.move(stray, tmp_path / "backup")
    shutil.move(side(place), tmp_path / "here")
    (place / "runs" / run / "run").symlink_to(tmp_path / "backup" / "run")
    (error,) = swept(place, 1)
    assert isinstance(error, EvidenceError) and sorted((place / "keys").rglob("*")) == kept
    (place / "runs" / run / "run").unlink()
    shutil.move(tmp_path / "here", side(place))
    dated(place, "2020-01-01")
    assert swept(place, 1) == [KINDS]  # the control: that day, where it is the run's own


def test_one_run_that_cannot_be_swept_keeps_no_other_from_it(
    played: Parties, tmp_path: Path
) -> None:
    place = copied(played, NAME, tmp_path)
    stray = place / "runs" / ("0" * 32)
    shutil.copytree(place / "runs" / played.charter.run, stray)
    (stray / "run" / "plan.json").unlink()
    error, first = swept(place, 31)
    assert isinstance(error, UsageError) and first == ("captures",)
    shutil.rmtree(stray / "run")  # a charter alone: it has not begun
    assert swept(place, 31) == []
    shutil.rmtree(stray)
    dated(place, "9999-12-31")
    assert swept(place, 400) == []  # a clock that was far ahead ends the sweep of no other run


# --- what a policy holds back -------------------------------------------------------------------


def test_a_model_is_held_back_until_every_client_signed(played: Parties, tmp_path: Path) -> None:
    place = copied(played, "client-1", tmp_path)
    assert own_model(place).facts["client"] == "client-1"  # the control: all waivers lie there
    other = place_of(place) / "waivers" / "A05.client-3.json"
    whole = other.read_bytes()
    for spoilt, code, text in (
        (None, 2, "A05 is NOT_TESTED, and no waiver is signed by client-3"),
        (whole.replace(b"client-3", b"client-2"), 5, "not signed by client-2"),
        (whole.replace(b"M. Bloch", b"N. Bloch"), 5, "not signed by client-3"),
        (b"{}", 5, "states no format version"),
    ):
        other.unlink()
        if spoilt is not None:
            other.write_bytes(spoilt)
        said = invoke("site", "model", place, "--out", tmp_path / "held.npz")
        assert said.exit_code == code and text in " ".join(said.stderr.split()), said.stderr
        assert not (tmp_path / "held.npz").exists()
        with pytest.raises((HeldBack, EvidenceError)):
            Run(place).model("client-1")
        other.write_bytes(whole)
    with pytest.raises(HeldBack, match="accepted"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "today", lambda: date.today() + timedelta(days=31))
        own_model(place)
    office = folder(played, AGGREGATOR_NAME)
    for wrong, text in ((office, "holds no data"), (place, "does not hold models back for A04")):
        attack = "A04" if wrong is place else "A05"
        told = invoke(
            "site", "waive", wrong, "--attack", attack, "--owner", "M", "--until", "2099-01-01",
            "--reason", "r",
        )  # fmt: skip
        assert told.exit_code == 2 and text in " ".join(told.stderr.split())


def test_a_policy_that_was_exchanged_lets_no_model_out(played: Parties, tmp_path: Path) -> None:
    """A client's own model opens by its run's name, which follows from the policy."""
    place = copied(played, NAME, tmp_path)
    run, opened = Run(place), Run(place).client_models.open(NAME)
    shutil.rmtree(place_of(place) / "waivers")
    with pytest.raises(HeldBack):
        run.model(NAME)
    loose = HELD.model_copy(update={"release": None})
    run.folder.write("policy.json", policy_text(loose).encode())
    with pytest.raises(EvidenceError, match="does not follow"):
        run.model(NAME)
    said = invoke("model", "export", place, "--site", NAME, "--to", tmp_path / "m.npz")
    assert said.exit_code == 5 and not (tmp_path / "m.npz").exists()
    assert run.client_models.open(NAME).number == opened.number  # the control: the key is there
    plan = played.charter.plan.model_copy(update={"policy_digest": loose.digest})
    run.folder.write("plan.json", plan.text().encode())
    roster = json.loads(run.folder.read("roster.json"))
    other = run_id(bytes.fromhex(roster["nonce"]), played.charter.roster, plan.digest, loose.digest)
    named = json.dumps({**roster, "run": other}, indent=2, sort_keys=True) + "\n"
    run.folder.write("roster.json", named.encode())
    with pytest.raises(UsageError, match="key is not here"):  # now all of it agrees
        run.model(NAME)


def test_an_answered_attack_takes_the_place_of_waivers(played: Parties, tmp_path: Path) -> None:
    """Attacks run where all sides are; a verdict on other ledgers, or a FAIL, is no answer."""
    handed = [write_hand_over(f, tmp_path / f"{f.name}.zip")[0] for f in played.folders.values()]
    gather_files(handed, tmp_path / "whole")
    view = Run(tmp_path / "whole").view()
    place = copied(played, "client-1", tmp_path)
    for file in (place_of(place) / "waivers").glob("A05.*"):
        file.unlink()
    out = tmp_path / "m.npz"
    for found, code in (
        (attacked(view, row(**LEAK)), 2),
        (attacked(view, row(), heads_digest="ab" * 32), 2),
        (attacked(view, row()), 0),
    ):
        (tmp_path / "whole" / "attacks.json").write_bytes(found.attacks_text)
        said = invoke("site", "model", place, "--audited", tmp_path / "whole", "--out", out)
        assert said.exit_code == code, said.stderr
        assert out.exists() == (code == 0)
    ledger = tmp_path / "whole" / "ledger" / "client-2.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-2])
    out.unlink()
    said = invoke("site", "model", place, "--audited", tmp_path / "whole", "--out", out)
    assert said.exit_code == 5 and not out.exists()
    with pytest.raises(HeldBack):
        own_model(place)
