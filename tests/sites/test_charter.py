"""What the parties agree on before round 1, and what each keeps for itself."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from audits.evidence.charter_file import REHEARSED, read_charter
from crypto.signing import canonical
from protocols.errors import EvidenceError
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from secure_fgl.charters import joining, party
from secure_fgl.charters.broker import Broker
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.facts import party_of
from secure_fgl.charters.party import PartyKit
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.sides.party_side import place_of
from tests.sites.stage import Parties, assemble, banks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(banks(), tmp_path_factory.mktemp("parties"))


def test_every_party_reads_the_same_charter_under_its_own_name(made: Parties) -> None:
    kits = {name: made.kit(name) for name in made.folders}
    assert len({kit.charter.signed for kit in kits.values()}) == 1
    assert {kit.charter.run for kit in kits.values()} == {made.charter.run}
    assert sorted(kit.name for kit in kits.values()) == sorted(made.charter.carriers)
    assert all(kit.name == name for name, kit in kits.items())


def test_o23_a_relay_signs_the_charter_with_a_connection_of_its_own(tmp_path: Path) -> None:
    document = banks().model_dump(mode="json")
    mixing = {"algorithm": {"name": "fed_ego", "rounds": 1}, "policy": "shuffled"}
    made = assemble(Config.parse({**document, **mixing}), tmp_path / "parties")
    (relay,) = made.charter.roster.names(Role.RELAY)
    assert relay in made.charter.signatures and made.kit(relay).name == relay
    made.charter.check()
    carriers = made.charter.carriers
    shared = {**carriers, relay: carriers[AGGREGATOR_NAME]}
    with pytest.raises(EvidenceError, match="a connection of its own"):
        replace(made.charter, carriers=shared).check()


def test_o26_an_identity_is_closed_to_others_and_mute(made: Parties) -> None:
    folder = made.folders["client-1"]
    secret = json.loads((folder / "identity.json").read_text())
    assert (folder / "identity.json").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    kit = made.kit("client-1")
    shown = repr(kit) + repr(kit.me) + repr(kit.charter)
    assert len(secret["seed"]) == 64 and secret["seed"] not in shown
    with pytest.raises(TypeError):
        copy.copy(kit)
    others = b"".join((place_of(f) / "charter.json").read_bytes() for f in made.folders.values())
    assert secret["seed"].encode() not in others


def test_o26_an_identity_that_others_can_read_is_not_used(made: Parties, tmp_path: Path) -> None:
    folder = tmp_path / "party"
    shutil.copytree(made.folders["client-2"], folder)
    assert PartyKit.load(folder).name == "client-2"
    (folder / "identity.json").chmod(0o640)
    with pytest.raises(UsageError, match="other users"):
        PartyKit.load(folder)


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    first = party.new_identity(tmp_path, "client-1", Role.CLIENT)
    with pytest.raises(UsageError, match="cannot be written"):
        party.new_identity(tmp_path, "client-1", Role.CLIENT)
    assert party.load_identity(tmp_path).party == first
    assert party_of(first.document()) == first


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"name": "x"}', "\0" * 5000])
def test_a_file_that_is_no_identity_is_refused_without_a_word_of_it(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "identity.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        party.load_identity(tmp_path)
    assert not content or content not in str(caught.value)


def test_o10_a_charter_that_somebody_did_not_sign_is_no_charter(made: Parties) -> None:
    made.charter.check()
    for name in made.charter.signatures:
        signatures = {k: v for k, v in made.charter.signatures.items() if k != name}
        with pytest.raises(EvidenceError, match="did not sign"):
            replace(made.charter, signatures=signatures).check()


def test_o10_nobody_gets_another_s_connection_or_another_key(made: Parties) -> None:
    """Who runs the broker could otherwise answer in a client's place."""
    charter = made.charter
    one, two = charter.carriers["client-1"], charter.carriers["client-2"]
    swapped = replace(charter, carriers={**charter.carriers, "client-1": two, "client-2": one})
    with pytest.raises(EvidenceError, match="signed another charter"):
        swapped.check()
    moved = replace(charter, broker=Broker(("tls://elsewhere.example:4222",)))
    with pytest.raises(EvidenceError, match="signed another charter"):
        moved.check()
    stranger = Identity.generate("client-1", Role.CLIENT)
    parties = [
        stranger.party if n == "client-1" else charter.roster.party(n) for n in charter.carriers
    ]
    other = replace(charter, roster=type(charter.roster)(parties))
    with pytest.raises(EvidenceError, match="signed another charter"):
        other.check()
    doubled = replace(charter, carriers={**charter.carriers, "client-1": two})
    with pytest.raises(EvidenceError, match="connection of its own"):
        doubled.check()


def test_o10_a_plan_or_setting_cannot_be_exchanged_after_the_signatures(made: Parties) -> None:
    charter = made.charter
    config = banks(rounds=7)
    with pytest.raises(EvidenceError, match="signed another charter"):
        replace(charter, config=config).check()
    policy = charter.policy.model_copy(update={"name": "mine"})
    with pytest.raises(EvidenceError, match="signed another charter"):
        replace(charter, policy=policy).check()


def test_a_party_signs_only_what_names_it_as_it_is(made: Parties, tmp_path: Path) -> None:
    party.new_identity(tmp_path, "client-1", Role.CLIENT)
    with pytest.raises(EvidenceError, match="does not name this party"):
        joining.sign(tmp_path, made.charter)
    shutil.copytree(made.folders["client-1"] / "runs", tmp_path / "runs")
    with pytest.raises(EvidenceError, match="other keys"):
        PartyKit.load(tmp_path)


def test_a_charter_reads_back_and_any_changed_byte_is_found(made: Parties) -> None:
    data = made.charter.encode()
    again = Charter.decode(data)
    again.check()
    assert again.signed == made.charter.signed and again.encode() == data
    step = len(data) // 60
    for place in range(0, len(data), step):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(EvidenceError):
            Charter.decode(bytes(changed)).check()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b'{"run":"00"}'])
def test_bytes_that_are_no_charter_are_refused(data: bytes) -> None:
    with pytest.raises(EvidenceError):
        Charter.decode(data)


def test_a_charter_reads_nobody_s_environment(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_BUDGETS", "a private path")
    for spelt in ("${SECURE_FGL_BUDGETS}", '"\\x24{SECURE_FGL_BUDGETS}"'):
        document = made.charter.document()
        document["config"] = document["config"].replace("masks", spelt)
        with pytest.raises(EvidenceError, match="asks for a variable"):
            Charter.decode(canonical(document))


def test_where_the_data_lie_is_each_party_s_own_affair(
    made: Parties, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert made.charter.config.data.root is None
    monkeypatch.setenv("SECURE_FGL_DATA", str(tmp_path))
    assert made.kit("client-1").config().data.root == str(tmp_path)
    monkeypatch.delenv("SECURE_FGL_DATA")
    assert made.kit(AGGREGATOR_NAME).config().data.root is None


OWN = {
    "budget": {"store": "/somewhere"},
    "data.root": "/somewhere",
    "faults": {"drop": "1@1"},
    "isolate": True,
    "prepare_ahead": False,
    "resume": False,
}


def setting(name: str) -> Config:
    document = banks().model_dump(mode="json")
    first, _, last = name.partition(".")
    document[first] = OWN[name] if not last else {**document[first], last: OWN[name]}
    return Config.parse(document)


@pytest.mark.parametrize("name", OWN)
def test_what_is_each_site_s_own_is_never_part_of_what_others_send(
    name: str, made: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assemble(setting(name), tmp_path / "drawn").charter.config == made.charter.config
    theirs = replace(made.charter, config=setting(name), signatures={})
    with pytest.raises(EvidenceError, match="each site's own"):  # nobody signs it by mistake
        joining.sign(made.folders["client-1"], theirs)
    for place in made.folders.values():  # and nobody uses it, even if all were talked into it
        me = party.load_identity(place)
        theirs = theirs.signed_by(me.party.name, me.signing)
    with pytest.raises(EvidenceError, match=name.partition(".")[0]):
        theirs.check()
    monkeypatch.setenv("SECURE_FGL_BUDGETS", str(tmp_path / "mine"))
    kit = replace(made.kit("client-1"), charter=theirs)  # what a charter says has no effect at all
    assert BudgetStore(kit.config().budget.store).path == tmp_path / "mine"
    assert kit.config().resume


def test_a_charter_names_a_policy_and_not_the_drawer_s_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    shutil.copy(ROOT / "examples" / "own_policy.yaml", path)
    document = {**banks().model_dump(mode="json"), "policy": str(path)}
    made = assemble(Config.parse(document), tmp_path / "parties")
    assert made.charter.config.policy == "own" and str(tmp_path) not in str(made.charter.encode())
    other = made.charter.config.model_copy(update={"policy": str(path)})
    with pytest.raises(EvidenceError, match="another policy"):
        replace(made.charter, config=other).check_content()


def test_a_charter_s_policy_names_no_approvers(tmp_path: Path) -> None:
    """A site knows of a charter that all sign, and of no second way to agree."""
    made = assemble(banks(), tmp_path / "parties")
    made.charter.check_content()  # control
    policy = made.charter.policy.model_copy(update={"approvals": {"dpo": "ab" * 32}})
    plan = made.charter.plan.model_copy(update={"policy_digest": policy.digest})
    with pytest.raises(EvidenceError, match="names approvers"):
        replace(made.charter, policy=policy, plan=plan).check_content()


def test_a_report_of_a_rehearsal_says_so_first(made: Parties) -> None:
    """By the organisations of a charter whose signatures hold; others' reports say nothing."""
    drawn = read_charter(made.charter.encode())
    assert not drawn.rehearsed  # control
    assert replace(drawn, organisations={"aggregator": f"{REHEARSED}aggregator"}).rehearsed
