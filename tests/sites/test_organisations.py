"""Two organisations where the threat model counts on two, one version, and never three sites."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from crypto.signing import canonical
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, EvidenceError
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from protocols.wire.roster import Roster
from secure_fgl.charters import joining, party
from secure_fgl.charters.charter import (
    Charter,
    alike,
    changes,
    crowded,
    insiders,
    nameless,
    same_owner,
    too_few,
)
from secure_fgl.charters.facts import misnamed_organisation
from secure_fgl.charters.party import PartyKit
from secure_fgl.consortium import Consortium
from secure_fgl.errors import UsageError
from tests.secure_fgl.cli_tools import invoke
from tests.sites.stage import Parties, assemble, banks

CLIENTS = {f"client-{n}": Role.CLIENT for n in range(1, 6)}
OTHERS = {
    "aggregator": Role.AGGREGATOR,
    "key-authority": Role.KEY_AUTHORITY,
    "witness-1": Role.WITNESS,
    "witness-2": Role.WITNESS,
    "relay": Role.RELAY,
    "matcher": Role.MATCHER,
    "tag-server-1": Role.TAG_SERVER,
    "tag-server-2": Role.TAG_SERVER,
}
APART = {
    *(("aggregator", n) for n in OTHERS if n != "aggregator"),
    ("key-authority", "witness-1"),
    ("key-authority", "witness-2"),
    ("matcher", "tag-server-1"),
    ("matcher", "tag-server-2"),
    ("tag-server-1", "tag-server-2"),
    ("witness-1", "witness-2"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(banks(policy="he"), tmp_path_factory.mktemp("parties"))


def owners(names: Mapping[str, Any], **changed: str) -> dict[str, str]:
    """Return an organisation for each party, all different but for what is changed."""
    alike = {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: f"Bank {name}" for name in names} | alike


def test_roles_that_must_not_work_together_are_of_two_organisations(made: Parties) -> None:
    roles, policy = {**CLIENTS, **OTHERS}, made.charter.policy
    assert [*crowded(owners(roles), roles, policy)] == []
    for one in OTHERS:
        for other in OTHERS:
            if one >= other:
                continue
            named = {**owners(roles), one: "Big Bank", other: "BIG  bank."}
            found = [*crowded(named, roles, policy)]
            apart = (one, other) in APART or (other, one) in APART
            assert bool(found) == apart, (one, other)
            assert all("two organisations are needed" in line for line in found)


@pytest.mark.parametrize(
    ("clients", "inside", "beside", "colluders"),
    [(7, 1, 0, 1), (7, 2, 0, 2), (7, 1, 1, 2), (8, 2, 1, 3), (7, 0, 1, 1), (7, 0, 0, 0)],
)
@pytest.mark.parametrize("role", ["aggregator", "witness-1", "tag-server-1"])
def test_o7_clients_of_the_aggregators_or_a_witness_organisation_are_colluders(
    role: str, clients: int, inside: int, beside: int, colluders: int, made: Parties
) -> None:
    """All of them; of another organisation all but one, who work together and with nobody else."""
    names = {f"client-{n}": Role.CLIENT for n in range(clients)}
    roles = {**names, "aggregator": Role.AGGREGATOR, role: OTHERS[role]}
    named = {**owners(roles), role: "Big Bank"}
    named |= {f"client-{n}": "big-bank" for n in range(inside)}
    named |= {f"client-{clients - n}": "Other Bank" for n in range(1, beside + 2)}
    assert insiders(named, roles) == sorted(f"client-{n}" for n in range(inside))
    for assumed in range(colluders + 2):
        policy = made.charter.policy.model_copy(update={"colluders": assumed})
        found = [*crowded(named, roles, policy)]
        assert bool(found) == (assumed < colluders)
        assert all(f"say colluders: {colluders}" in line for line in found)


def test_where_sums_are_in_clear_no_helper_of_the_aggregator_is_counted(made: Parties) -> None:
    roles = {**CLIENTS, "aggregator": Role.AGGREGATOR}
    named = {**owners(roles), "aggregator": "Big Bank", "client-1": "Big Bank"}
    assert not [*crowded(named, roles, PrivacyPolicy.preset("unsafe_plaintext"))]
    assert [*crowded(named, roles, made.charter.policy)]  # the control
    roles |= {"tag-server-1": Role.TAG_SERVER}
    named |= {"aggregator": "Office", "tag-server-1": "Big Bank"}
    assert [*crowded(named, roles, PrivacyPolicy.preset("unsafe_plaintext"))]  # of tags it does


@pytest.mark.parametrize("colluders", [0, 1, 3])
def test_no_client_is_of_the_matchers_organisation(colluders: int, made: Parties) -> None:
    """It compares all tags: with a client that guesses items it names who holds them."""
    policy = made.charter.policy.model_copy(update={"colluders": colluders})
    roles = {**CLIENTS, "matcher": Role.MATCHER, "tag-server-1": Role.TAG_SERVER}
    assert not [*crowded(owners(roles), roles, policy)]  # the control
    found = [
        *crowded({**owners(roles), "matcher": "client 1", "client-1": "Client-1"}, roles, policy)
    ]
    assert [line for line in found if "client-1: of the matcher's organisation" in line]


def test_a_key_authority_may_have_a_client_where_nothing_is_compared(made: Parties) -> None:
    roles = {**CLIENTS, "key-authority": Role.KEY_AUTHORITY}
    named = {**owners(roles), "key-authority": "Big Bank", "client-1": "Big Bank"}
    assert not [*crowded(named, roles, made.charter.policy)]
    assert [*crowded(named, roles, made.charter.policy, [Disclosure.SIMILARITY])]


@pytest.mark.parametrize("role", ["aggregator", "key-authority", "witness-1"])
def test_no_client_works_with_who_compares_or_weighs(role: str, tmp_path: Path) -> None:
    """`fed_pub` with a client of the organisation of one that helps to open."""
    parties = assemble(banks(policy="pilot", algorithm="fed_pub"), tmp_path)
    charter, honest = parties.charter, owners(parties.charter.carriers)
    client = next(n for n in charter.carriers if charter.roster.party(n).role is Role.CLIENT)
    drawn(parties, honest)
    for colluders in (0, 1):  # no number of the policy makes up for it
        policy = charter.policy.model_copy(update={"colluders": colluders})
        roles = {name: charter.roster.party(name).role for name in charter.carriers}
        named = {**honest, client: honest[role]}
        both = [Disclosure.SIMILARITY, Disclosure.WEIGHTED_SUM]
        found = [*crowded(named, roles, policy, both)]
        assert any("brings out the key" in line for line in found)
    with pytest.raises(UsageError, match="SIMILARITY and WEIGHTED_SUM"):
        drawn(parties, named)
    for place in parties.folders.values():
        with pytest.raises(EvidenceError, match="organisation"):
            joining.sign(place, replace(drawn(parties, honest), organisations=named))


def test_a_charter_shows_which_clients_are_of_the_aggregators_organisation(tmp_path: Path) -> None:
    document = {**PrivacyPolicy.preset("masks").document(), "name": "counted", "colluders": 1}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(document))
    parties = assemble(banks(policy=str(tmp_path / "policy.yaml")), tmp_path / "parties")
    one, honest = sorted(parties.charter.plan.clients)[0], owners(parties.charter.carriers)
    for named, shown in ((honest, "none"), ({**honest, one: honest["aggregator"]}, one)):
        path = tmp_path / f"{shown}.json"
        path.write_bytes(drawn(parties, named).encode())
        out = " ".join(invoke("charter", "show", path).stdout.split())
        assert f"witness and tag servers: {shown}" in out
        assert "up to 3 of 5 clients may help" in out
        assert "and 1 assumed to collude" in out and "may change at will" in out  # what is signed


def test_names_of_one_organisation_are_one() -> None:
    assert same_owner("Hospital North") == same_owner("hospital-north") != same_owner("Hospital")


@pytest.mark.parametrize(
    ("clients", "alike", "colluders", "said"),
    [
        (5, 0, 0, ""),
        (5, 2, 0, "say colluders: 1"),  # if another vanished, four clients of three
        (5, 2, 1, ""),
        (6, 3, 1, "say colluders: 2"),
        (6, 3, 2, ""),
        (4, 2, 0, "wants 4"),
        (5, 3, 2, "wants 4"),
        (4, 4, 0, "1 organisation,"),
    ],
)
def test_o10_clients_of_one_organisation_count_once(
    clients: int, alike: int, colluders: int, said: str, made: Parties
) -> None:
    roles = {f"client-{n}": Role.CLIENT for n in range(clients)}
    named = owners(roles) | {f"client-{n}": "Big Bank" for n in range(alike)}
    policy = made.charter.policy.model_copy(update={"colluders": colluders})
    found = [*crowded(named, roles, policy)]
    assert bool(found) == bool(said) and all(said in line for line in found)


def test_o10_every_cohort_that_is_let_through_rests_on_enough_organisations(made: Parties) -> None:
    """Whoever vanishes: the rule is checked against all cohorts that a policy admits."""
    roles = {f"client-{n}": Role.CLIENT for n in range(7)}
    for shared in range(2, 7):
        named = owners(roles) | {f"client-{n}": "Big Bank" for n in range(shared)}
        for colluders in range(4):
            policy = made.charter.policy.model_copy(update={"colluders": colluders})
            fewest = min(
                len({named[name] for name in cohort})
                for cohort in combinations(roles, policy.smallest_cohort)
            )
            admitted = not [*crowded(named, roles, policy)]
            assert admitted == (fewest >= policy.minimum_cohort + 1), (alike, colluders)


def test_two_organisations_are_too_few_whatever_the_policy_says() -> None:
    assert not too_few(["a", "b", "c", "d"]) and not too_few(["a", "b", "c"])
    for few in (["a", "b"], ["a", "b", "B"], []):
        assert "a total is over 3 at least" in too_few(few)
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        PrivacyPolicy.model_validate({"name": "x", "rules": {}, "minimum_cohort": 1})


@pytest.mark.parametrize(("others", "refused"), [(2, False), (3, True)])
def test_three_organisations_are_admitted_by_a_policy_that_says_so(
    others: int, refused: bool, made: Parties
) -> None:
    roles = {f"client-{n}": Role.CLIENT for n in range(3)}
    policy = made.charter.policy.model_copy(update={"minimum_cohort": others})
    found = [*crowded(owners(roles), roles, policy)]
    assert bool(found) is refused and all("minimum_cohort: 2" in line for line in found)
    one_twice = {**owners(roles), "client-1": "Big Bank", "client-2": "Big Bank"}
    assert [*crowded(one_twice, roles, policy)]  # two organisations


def drawn(made: Parties, organisations: Mapping[str, str]) -> Charter:
    charter = made.charter
    return Charter.draw_up(
        [charter.roster.party(name) for name in charter.carriers],
        charter.carriers,
        broker=charter.broker,
        plan=charter.plan,
        policy=charter.policy,
        config=charter.config,
        organisations=organisations,
    )


def test_a_charter_with_one_organisation_twice_is_neither_drawn_signed_nor_run(
    made: Parties,
) -> None:
    honest = owners(made.charter.carriers)
    twice = {**honest, "key-authority": honest["aggregator"]}
    with pytest.raises(UsageError, match="two organisations are needed"):
        drawn(made, twice)
    two = {**honest, "client-1": honest["client-2"]}
    with pytest.raises(UsageError, match="say colluders: 1"):
        drawn(made, two)
    for wrong in (twice, two):
        theirs = replace(drawn(made, honest), organisations=wrong)
        for place in made.folders.values():
            with pytest.raises(EvidenceError, match="organisation"):
                joining.sign(place, theirs)
            me = party.load_identity(place)
            theirs = theirs.signed_by(me.party.name, me.signing)
        with pytest.raises(EvidenceError, match="organisation"):
            theirs.check()


def test_one_key_for_two_parties_is_no_roster(made: Parties) -> None:
    roster = made.charter.roster
    one, other = roster.party("aggregator"), roster.party("key-authority")
    rest = [roster.party(n) for n in made.charter.carriers if n not in (one.name, other.name)]
    for doubled in (replace(other, verify=one.verify), replace(other, seal=one.seal)):
        with pytest.raises(BadEnvelope, match="same key"):
            Roster([*rest, one, doubled])
        document = made.charter.document()
        document["parties"] = [p.document() for p in (*rest, one, doubled)]
        with pytest.raises(EvidenceError, match="cannot be read"):
            Charter.decode(canonical(document))


def test_another_version_is_refused_with_both_numbers(
    made: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    charter, folder = made.charter, made.folders["client-1"]
    assert set(charter.versions) == {"secure-fgl"} and charter.versions["secure-fgl"]
    assert Charter.decode(charter.encode()).versions == charter.versions
    agreed = charter.versions["secure-fgl"]
    for act in (lambda: PartyKit.load(folder), lambda: joining.sign(folder, charter)):
        monkeypatch.setattr(
            "secure_fgl.charters.charter.installed", lambda: {"secure-fgl": "9.9.9"}
        )
        with pytest.raises(UsageError) as caught:
            act()
        assert f"secure-fgl {agreed}" in caught.value.what
        assert "secure-fgl 9.9.9" in caught.value.what
        monkeypatch.setattr("secure_fgl.charters.charter.installed", lambda: {"secure-fgl": ""})
        act()  # what is not installed here is compared where it is
    monkeypatch.undo()
    PartyKit.load(folder)


@pytest.mark.parametrize("wrong", [{}, {"secure-fgl": "\n"}, {"secure-fgl": "1", "more": "2"}])
def test_a_charter_says_of_which_versions_it_is(wrong: dict[str, str], made: Parties) -> None:
    theirs = replace(made.charter, versions=wrong)
    with pytest.raises(EvidenceError, match="version"):
        joining.sign(made.folders["client-1"], theirs)
    moved = replace(made.charter, versions={**made.charter.versions, "secure-fgl": "8.8"})
    assert moved.signed != made.charter.signed  # they are under the signatures
    assert any(line.startswith("version secure-fgl") for line in changes(made.charter, moved))


def test_three_sites_are_refused_unless_a_policy_says_so(
    tmp_path: Path,
) -> None:
    started = invoke("init", tmp_path / "pilot", "--pilot")
    assert started.exit_code == 0 and "a fourth holder of data" in " ".join(started.stderr.split())
    consortium = tmp_path / "pilot" / "consortium.yaml"
    config = tmp_path / "pilot" / "config.yaml"
    listed = consortium.read_text()
    two, twice = tmp_path / "two.yaml", tmp_path / "twice.yaml"
    two.write_text(re.sub(r".*hospital-(west|south).*\n", "", listed))
    twice.write_text(listed.replace("Hospital West", "hospital south").replace("East", "North"))

    def new(folder: str, name: str, whose: str, role: str, file: Path) -> Result:
        given = ("--name", name, "--organisation", whose, "--role", role)
        return invoke("site", "new", tmp_path / folder, *given, "--consortium", file)

    for file in (two, twice):
        refused = new("north", "hospital-north", "Hospital North", "client", file)
        assert refused.exit_code == 2 and not (tmp_path / "north").exists()
        assert "2 organisations with data" in refused.stderr
        assert "a fourth holder of data" in " ".join(refused.stderr.split())
    stranger = new("north", "hospital-north", "Hospital Nord", "client", consortium)
    assert stranger.exit_code == 2 and "lists no party" in " ".join(stranger.stderr.split())
    facts = []
    for name in ("hospital-north", "hospital-east", "hospital-south"):
        made = new(name, name, name.replace("-", " ").title(), "client", consortium)
        assert made.exit_code == 0 and "a fourth holder" in " ".join(made.stderr.split())
        facts.append(tmp_path / name / f"{name}.facts.json")
    for name, whose in (("key-authority", "Notary"), ("aggregator", "Coordinating Office")):
        made = new(name, name, whose, name.replace("-", "_"), consortium)
        assert made.exit_code == 0 and "a fourth holder" not in made.stderr
        facts.append(tmp_path / name / f"{name}.facts.json")
    config.write_text(config.read_text().replace(", hospital-west]", "]"))
    refused = invoke(
        "charter", "draw", config, *facts, "--server", "fl.example.org", "--out", tmp_path / "c"
    )
    assert refused.exit_code == 2 and not (tmp_path / "c").exists()
    said = " ".join(refused.stderr.split())
    assert "write minimum_cohort: 2 in a policy file of your own" in said
    policy = tmp_path / "pilot" / "policy.yaml"
    policy.write_text(policy.read_text().replace("minimum_cohort: 3", "minimum_cohort: 2"))
    drawn_up = invoke(
        "charter", "draw", config, *facts, "--server", "fl.example.org", "--out", tmp_path / "c"
    )
    assert drawn_up.exit_code == 0, drawn_up.stderr
    shown = " ".join(invoke("charter", "show", tmp_path / "c").stdout.split())
    assert "a total may be of three clients" in shown and "any two clients that pool" in shown
    assert "may change not at all where they overlap" in shown


ALIKE = [
    ("OCA", "\u041e\u0421\u0410"),  # Latin; Cyrillic O, Es, A
    ("Bax", "\u0412\u0430\u0445"),
    ("KATE", "\u039a\u0391\u03a4\u0395"),  # Greek
    ("pace", "\u0440\u0430\u0441\u0435"),
    ("CITI", "\u0421\u04c0\u0422\u04c0"),  # Cyrillic, with palochka
    ("FAT", "\u03dc\u0391\u03a4"),  # Greek, with digamma
    ("AXY", "\u0410\u0425\u04ae"),  # Cyrillic, with the straight U
    ("VISA", "\u0474\u0406\u0405\u0410"),  # Cyrillic, with izhitsa, I, Dze
    ("lil", "\u04cf\u0456\u04cf"),
    ("jap", "\u03f3\u03b1\u03c1"),
    ("Clinic", "Cl\u0131n\u0131c"),  # Latin, without the dots
]


@pytest.mark.parametrize(("ours", "theirs"), ALIKE)
def test_names_in_other_letters_that_look_the_same_are_refused(ours: str, theirs: str) -> None:
    """Each is of one script, so that the rule on one name passes it: two clients were one owner."""
    assert not misnamed_organisation(ours) and not misnamed_organisation(theirs)  # the control
    assert ours != theirs and ours.casefold() != theirs.casefold()
    assert same_owner(ours) == same_owner(theirs)
    assert "look alike" in next(alike([ours, "Hospital", theirs]))
    names = {"client-1": ours, "client-2": theirs, "aggregator": "Office"}
    assert any("look alike" in said for said in nameless(names, {*names}))
    members = [
        {"name": f"c{n}", "role": "client", "organisation": name}
        for n, name in enumerate((ours, theirs, "North", "South", "West"))
    ]
    document = {"server": {"name": "s", "port": 8002}, "parties": members}
    with pytest.raises(ValueError, match="look alike"):
        Consortium.model_validate(document)
    members[1]["organisation"] = "East"
    Consortium.model_validate(document)


def test_names_that_differ_to_the_eye_are_of_two_owners() -> None:
    for names in (
        ["Klinik Nord", "Klinik S\u00fcd"],
        ["\u041a\u043b\u0438\u043d\u0438\u043a\u0430", "Klinika"],  # Cyrillic, drawn otherwise
        ["\u0391\u03b8\u03ae\u03bd\u03b1", "Athina"],
        ["Hospital North", "hospital-north"],  # one owner, in the same letters: counted once
    ):
        assert [*alike(names)] == []


def test_what_the_rule_on_names_does_not_see() -> None:
    for names in (
        ("Iowa", "lowa"),
        ("Coop", "C00p"),
        ("Marnet", "Mamet"),
        ("oho", "\u0585\u0570\u0585"),  # Armenian
        ("Hotel", "Ho\u0167el"),  # a t with a stroke
    ):
        assert [*alike(names)] == [], names


def test_what_init_writes_and_says_names_the_policy_that_admits_three(tmp_path: Path) -> None:
    shown = " ".join(invoke("init", tmp_path / "pilot", "--pilot").stderr.split())
    assert "or three under a policy that says minimum_cohort: 2" in shown
    written = (tmp_path / "pilot/consortium.yaml").read_text()
    assert "four or more" in written and "minimum_cohort: 2" in written
    assert "minimum_cohort: 2" in " ".join(invoke("init", "--help").stdout.split())
