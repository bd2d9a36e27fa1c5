"""How parties come to agree: names, facts, organisations, what each says to a charter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crypto.signing import canonical
from protocols.errors import EvidenceError
from protocols.plan.plan import roles_of
from protocols.wire.roles import Role, names_in
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from secure_fgl.charters import joining, party
from secure_fgl.charters.charter import Charter, Word, changes
from secure_fgl.charters.facts import Facts, check_party, misnamed_organisation
from secure_fgl.charters.party import PartyKit
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.run.naming import client_names, misnamed
from tests.sites.stage import Parties, assemble, banks

NAMED = {"name": "by_owner", "names": ["Bank_E", "bank-a", "bank-c", "bank-b", "bank-d"]}


def named(**changed: Any) -> Config:
    document = banks().model_dump(mode="json")
    document["data"]["partition"] = {**NAMED, **changed}
    return Config.parse(document)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return assemble(named(), tmp_path_factory.mktemp("parties"))


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a", "b", ""], "letters"),
        (["x" * 61], "letters"),
        (["a/b"], "letters"),
        (["../a"], "letters"),
        (["a.b"], "letters"),  # budgets/a.graph.checkpoint is of a client a, and of the unit graph
        ([".hidden"], "letters"),
        (["-rf"], "letters"),
        (["a b"], "letters"),
        (["a\n"], "letters"),
        (["a\0"], "letters"),
        (["h\u043espital"], "letters"),  # a Cyrillic o
        (["\uff41"], "letters"),  # a wide a
        (["a", "b", "a"], "stands twice"),
        (["North", "north"], "looks like"),
        (["north-1", "north_1"], "looks like"),
        (["aggregator"], "other parties"),
        (["Key_Authority"], "other parties"),
        (["authority"], "other parties"),
        (["tag-server-3"], "other parties"),
        (["roster"], "other parties"),
        (["vocabulary"], "other parties"),
    ],
)
def test_names_that_could_be_mistaken_are_refused(names: list[str], why: str) -> None:
    assert why in misnamed(names)
    with pytest.raises(UsageError, match="not valid") as caught:
        named(names=names)
    assert why in str(caught.value)


def test_no_client_is_called_as_another_role_is() -> None:
    others = [name for role in Role if role is not Role.CLIENT for name in names_in(role)]
    assert len(others) > 10
    assert all(misnamed([name]) for name in others)
    assert not misnamed(["hospital-north", "a", "Z_9", "x" * 60, *client_names(12)])


def test_names_count_themselves_and_stand_in_the_order_of_plans() -> None:
    shared = named().data.partition
    assert shared.clients == 5
    assert shared.called == ("Bank_E", "bank-a", "bank-b", "bank-c", "bank-d")
    assert Config.of_others(named().text()).data.partition == shared  # as a run folder holds it
    with pytest.raises(UsageError, match="not valid"):
        named(clients=4)
    with pytest.raises(UsageError, match="not valid"):
        Federation(clients=4, config=named())
    assert banks().data.partition.called == client_names(5)


def test_without_names_plans_are_as_they_were_and_with_them_nothing_else_moves() -> None:
    plain, other = (Federation.from_config(c).plan() for c in (banks(), named()))
    assert plain.clients == client_names(5)
    ours, theirs = plain.document(), other.document()
    ours.pop("clients"), theirs.pop("clients")
    for document in (ours, theirs):  # headers name their sender and recipient
        for item in document["items"]:
            del item["bytes"]
    assert ours == theirs


# --- facts ---------------------------------------------------------------------------------------


CARRIER, ANOTHERS = (
    "UAYBYOCIWZWYAXZOU7SRT5DSSYNEGWFS7H3Q2K3S43RNTXG7UY3MXCWK",
    "UCRSZZ27Q5FGOEVEFTPPUUR3K6EAYUDOZKFBF5IR2ON7RI44BW5QDXIT",
)


def facts(name: str = "bank-a", organisation: str = "Bank A") -> Facts:
    return Facts(Identity.generate(name, Role.CLIENT).party, organisation, CARRIER)


def test_facts_read_back_and_every_one_of_them_is_in_the_fingerprint() -> None:
    ours = facts()
    assert Facts.decode(ours.encode()) == ours
    assert len(ours.fingerprint.replace(" ", "")) == 32
    again = Facts.decode(ours.encode())
    assert again.fingerprint == ours.fingerprint
    other = Identity.generate("bank-a", Role.CLIENT).party
    for changed in (
        replace(ours, organisation="Bank B"),
        replace(ours, carrier=ANOTHERS),
        replace(ours, party=replace(ours.party, name="bank-b")),
        replace(ours, party=replace(ours.party, role=Role.RELAY)),
        replace(ours, party=replace(ours.party, verify=other.verify)),
        replace(ours, party=replace(ours.party, seal=other.seal)),
    ):
        assert changed.fingerprint != ours.fingerprint


FACTS = {**facts().party.document(), "organisation": "Bank", "carrier": CARRIER}


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b" " * (1 << 15),
        *(
            canonical({**FACTS, **more})
            for more in (
                {"name": "../x"},
                {"name": 7},
                {"name": "aggregator"},
                {"role": "key_authority"},
                {"role": "king"},
                {"verify": "00"},
                {"seal": 7},
                {"organisation": ""},
                {"organisation": "B\u0430nk"},
                {"carrier": CARRIER[:-1] + "A"},  # another checksum
                {"carrier": "S" + CARRIER[1:]},  # a secret one
                {"carrier": 7},
                {"more": "x"},
            )
        ),
        facts().encode() + b"\n",
    ],
)
def test_what_is_no_party_s_facts_is_refused(spoilt: bytes) -> None:
    with pytest.raises(UsageError):
        Facts.decode(spoilt)
    assert Facts.decode(canonical(FACTS)).carrier == CARRIER  # the control


def test_other_roles_have_the_names_of_plans() -> None:
    check_party("key-authority", Role.KEY_AUTHORITY)
    with pytest.raises(UsageError, match="cannot be called") as caught:
        check_party("notary", Role.KEY_AUTHORITY)
    assert caught.value.fix == "--name key-authority"


@pytest.mark.parametrize(
    "text", ["Universitätsklinikum Süd", "東京メディカルセンター", "Hôpital n° 4", "Νοσοκομείο"]
)
def test_organisations_are_called_as_they_are(text: str) -> None:
    plain = __import__("unicodedata").normalize("NFKC", text)
    assert not misnamed_organisation(plain)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x" * 101, " x", "x  y", "x\ny", "H\u043espital", "x\u202ey", "ﬁrm", "12 3", 7),
        *("Ban\u034fk A", "Bank\ufe0f A", "Bank\u2800A", "\u1160", "Bank\U000e0100"),  # not drawn
    ],
)
def test_organisations_hide_nothing_in_their_names(text: Any) -> None:
    assert misnamed_organisation(text)


# --- the charter ---------------------------------------------------------------------------------


def drawn(made: Parties, **changed: Any) -> Charter:
    charter = made.charter
    members = [charter.roster.party(name) for name in charter.carriers]
    given: dict[str, Any] = {
        "parties": members,
        "carriers": charter.carriers,
        "broker": charter.broker,
        "plan": charter.plan,
        "policy": charter.policy,
        "config": charter.config,
        **changed,
    }
    there = [member.name for member in given["parties"]]
    given.setdefault("organisations", {name: f"Organisation {name}" for name in there})
    return Charter.draw_up(given.pop("parties"), given.pop("carriers"), **given)


def test_a_charter_whose_clients_are_not_the_plan_s_is_neither_drawn_up_nor_kept(
    made: Parties,
) -> None:
    """Neither a client more nor one that the plan calls otherwise, nor a missing authority."""
    other = Identity.generate("bank-x", Role.CLIENT).party
    charter = made.charter
    members = [charter.roster.party(name) for name in charter.carriers]
    keys, gone = dict(charter.carriers), charter.plan.clients[0]
    fewer = [member for member in members if member.name != gone]
    rest = {name: key for name, key in keys.items() if name != gone}
    for parties, carriers in (
        ([*members, other], {**keys, "bank-x": CARRIER}),
        (fewer, rest),
        ([*fewer, other], {**rest, "bank-x": keys[gone]}),
    ):
        with pytest.raises(UsageError, match="No charter can be drawn up"):
            drawn(made, parties=parties, carriers=carriers)
    his = Federation.from_config(named(names=["a", "b", "c", "d", "e"]))
    for changed in ({"plan": his.plan()}, {"config": his.config.shared()}):
        with pytest.raises(UsageError, match="No charter can be drawn up"):
            drawn(made, **changed)
        theirs = replace(charter, **changed, signatures={})
        for place in made.folders.values():
            with pytest.raises(EvidenceError, match="plan"):  # nobody signs it by mistake
                joining.sign(place, theirs)
            me = party.load_identity(place)
            theirs = theirs.signed_by(me.party.name, me.signing)
        with pytest.raises(EvidenceError, match="plan"):  # nor does it run if all had
            theirs.check()
    drawn(made)  # the control


def test_connections_and_roles_are_the_plan_s(made: Parties) -> None:
    charter = made.charter
    first, *_ = charter.plan.clients
    office = charter.carriers[AGGREGATOR_NAME]
    with pytest.raises(UsageError, match="connection of its own"):
        drawn(made, carriers={**charter.carriers, first: office})
    members = [
        replace(charter.roster.party(n), role=Role.RELAY) if n == first else charter.roster.party(n)
        for n in charter.carriers
    ]
    with pytest.raises(UsageError, match=f"{first} is relay in it, and client in its plan"):
        drawn(made, parties=members)
    document = charter.document()
    document["carriers"][first] = "fgl.>"
    with pytest.raises(EvidenceError, match="cannot be read"):
        Charter.decode(canonical(document))


@pytest.mark.parametrize(
    "changed",
    [
        {"urls": []},
        {"urls": ["tls://x:4222"] * 17},
        {"urls": ["nats://x:4222"]},
        {"urls": ["tls://x"]},
        {"urls": ["tls://x:4222\n"]},
        {"deadline": 0},
        {"deadline": True},
        {"deadline": "60"},
        {"deadline": 7 * 86_400 + 1},
        {"root": "no certificate"},
        {"more": 1},
    ],
)
def test_what_is_no_broker_is_in_no_charter(changed: dict[str, Any], made: Parties) -> None:
    document = made.charter.document()
    Charter.decode(canonical(document))  # the control
    document["broker"] = {**document["broker"], **changed}
    with pytest.raises(EvidenceError, match="cannot be read"):
        Charter.decode(canonical(document))


def test_no_charter_runs_under_a_name_that_is_not_new(made: Parties) -> None:
    """Whoever draws it up chooses the nonce; without one, no evidence of the run is read."""
    for nonce in (b"", b"x", bytes(17)):
        with pytest.raises(EvidenceError, match="cannot be read"):
            Charter.decode(replace(made.charter, nonce=nonce).encode())
    Charter.decode(replace(made.charter, nonce=bytes(16)).encode())  # the control


def test_a_charter_names_every_organisation(made: Parties) -> None:
    names = {name: f"Bank {i}" for i, name in enumerate(made.charter.carriers)}
    charter = drawn(made, organisations=names)
    assert Charter.decode(charter.encode()).organisations == names
    assert charter.signed != drawn(made, organisations=names).signed  # a nonce of its own
    moved = replace(charter, organisations={**names, "aggregator": "Bank"})
    assert moved.signed != charter.signed  # an organisation is under the signatures
    for wrong in ({}, {"aggregator": "Bank"}, {**names, "aggregator": "B\u0430nk"}):
        with pytest.raises(UsageError, match="organisation"):
            drawn(made, organisations=wrong)


def test_nobody_signs_keeps_or_runs_a_charter_that_names_no_organisation(made: Parties) -> None:
    """Without names nothing keeps two roles of one organisation apart."""
    theirs = replace(made.charter, organisations={}, signatures={})
    for place in made.folders.values():
        joining.sign(place, drawn(made))  # the control
        with pytest.raises(EvidenceError, match="organisation of every party"):
            joining.sign(place, theirs)
        me = party.load_identity(place)
        theirs = theirs.signed_by(me.party.name, me.signing)
    for place in made.folders.values():
        with pytest.raises(EvidenceError, match="organisation of every party"):
            joining.keep(place, theirs)
    with pytest.raises(EvidenceError, match="organisation of every party"):
        theirs.check()


def test_nobody_signs_or_keeps_a_charter_that_calls_its_organisation_otherwise(
    tmp_path: Path,
) -> None:
    """Whoever draws it up names the organisations; a party's own facts say what it announced."""
    parties = assemble(named(), tmp_path)
    site, *_ = parties.folders
    folder = parties.folders[site]
    me = party.load_identity(folder)
    names = {name: f"Bank {i}" for i, name in enumerate(parties.charter.carriers)}
    honest = drawn(parties, organisations=names)
    other = drawn(parties, organisations={**names, me.party.name: "Bank Elsewhere"})
    (folder / f"{me.party.name}.facts.json").write_bytes(
        Facts(me.party, names[me.party.name], parties.charter.carriers[me.party.name]).encode()
    )
    with pytest.raises(EvidenceError, match="otherwise than its facts"):
        joining.sign(folder, other)
    keys = [party.load_identity(place) for place in parties.folders.values()]
    for key in keys:
        honest = honest.signed_by(key.party.name, key.signing)
        other = other.signed_by(key.party.name, key.signing)
    with pytest.raises(EvidenceError, match="otherwise than its facts"):
        joining.keep(folder, other)
    joining.refuse(folder, other, "we are not Bank Elsewhere")  # what is left to it
    joining.sign(folder, honest)  # the control
    assert joining.keep(folder, honest).charter.signed == honest.signed


def test_a_charter_that_somebody_refused_never_runs(made: Parties, tmp_path: Path) -> None:
    """A copy with that party's earlier signature and without the refusal does not run there."""
    parties = assemble(named(), tmp_path)
    charter, (site, *others) = parties.charter, parties.folders
    folder = parties.folders[site]
    name = PartyKit.load(folder).name
    refused = joining.refuse(folder, charter, "two rounds too many")
    assert refused.signed == charter.signed
    assert refused.approvals()[name].word is Word.REFUSED
    assert refused.approvals()[name].reason == "two rounds too many"
    again = Charter.decode(refused.encode())
    for copy in (refused, again):
        with pytest.raises(EvidenceError, match=f"{name} refused it: two rounds too many"):
            copy.check()
        with pytest.raises(EvidenceError, match="refused"):
            joining.keep(parties.folders[others[0]], copy)
    charter.check()  # the older copy, as somebody else may hold it
    for act in (joining.sign, joining.keep):
        with pytest.raises(EvidenceError, match="this party refused it"):
            act(folder, charter)
    with pytest.raises(EvidenceError, match="this party refused it"):
        PartyKit.load(folder)
    PartyKit.load(parties.folders[others[0]])  # the control: it did not refuse
    fresh = drawn(parties)  # another charter is another matter
    joining.sign(folder, fresh)


def test_a_refusal_is_its_party_s_and_of_its_charter(made: Parties) -> None:
    charter = made.charter
    first, second, *_ = sorted(charter.carriers)
    keys = {n: party.load_identity(made.folders[n]) for n in (first, second)}
    refused = charter.refused_by(first, keys[first].signing, "no")
    refused.approvals()
    for wrong in (
        replace(refused, refusals={second: refused.refusals[first]}),
        replace(drawn(made), refusals=refused.refusals),
        replace(refused, refusals={first: replace(refused.refusals[first], reason="yes and no")}),
        replace(refused, refusals={"bank-x": refused.refusals[first]}),
    ):
        with pytest.raises(EvidenceError):
            wrong.approvals()
    for reason in ("", "x" * 501, "two\nlines", "a bell \a"):
        with pytest.raises(UsageError, match="no reason"):
            charter.refused_by(first, keys[first].signing, reason)
    assert charter.refused_by(first, keys[first].signing, "Grün ist gut").refusals
    for reason in ("two\nlines", "x" * 501, 7):  # signed by a program of the party's own
        said = canonical([charter.signed.hex(), reason])
        document = {**charter.document(), "refusals": {first: {"reason": reason}}}
        note = keys[first].signing.sign("charter refusal", said).hex()
        document["refusals"][first]["signature"] = note
        with pytest.raises(EvidenceError, match="cannot be read"):
            Charter.decode(canonical(document))


def test_copies_are_put_together_and_nothing_else_is(made: Parties) -> None:
    bare = replace(made.charter, signatures={})
    copies = [joining.sign(place, bare) for place in made.folders.values()]
    whole = joining.merged(copies)
    whole.check()
    assert whole == made.charter or whole.encode() == made.charter.encode()
    part = joining.merged(copies[:2])
    with pytest.raises(EvidenceError, match="did not sign"):
        part.check()
    with pytest.raises(UsageError, match="not copies"):
        joining.merged([copies[0], drawn(made)])
    stolen = {name: b"\0" * 64 for name in copies[0].signatures}
    with pytest.raises(EvidenceError):
        joining.merged([copies[1], replace(bare, signatures=stolen)])


def test_a_folder_with_a_run_keeps_the_charter_of_it(made: Parties, tmp_path: Path) -> None:
    parties = assemble(named(), tmp_path)
    folder = next(iter(parties.folders.values()))
    joining.keep(folder, parties.charter)  # the same again is nothing new
    fresh = drawn(parties)
    for place in parties.folders.values():
        fresh = joining.sign(place, fresh)
    place = PartyKit.load(folder).folder
    (place / "run").mkdir()
    joining.keep(folder, parties.charter)
    (place / "charter.json").write_bytes(fresh.encode())
    with pytest.raises(UsageError, match="a run of another charter"):
        joining.keep(folder, parties.charter)
    with pytest.raises(EvidenceError, match="of another run than the folder"):
        PartyKit.load(folder)  # what lies in a run's folder is of that run
    (place / "run").rmdir()
    assert joining.keep(folder, parties.charter).charter.signed == parties.charter.signed
    assert joining.keep(folder, fresh).folder != place  # another run lies beside it


def test_what_is_new_in_a_charter_is_listed(made: Parties) -> None:
    charter = made.charter
    assert changes(charter, drawn(made)) == []  # a nonce is new in every charter
    longer = Federation.from_config(named())
    config = longer.config.model_copy(
        update={"algorithm": longer.config.algorithm.model_copy(update={"rounds": 9})}
    )
    plan = Federation.from_config(config).plan()
    first, *_ = charter.plan.clients
    stranger = Identity.generate(first, Role.CLIENT).party
    members = [stranger if n == first else charter.roster.party(n) for n in charter.carriers]
    names = {name: f"Bank {name}" for name in charter.carriers}
    other = drawn(
        made,
        parties=members,
        plan=plan,
        config=config,
        organisations=names,
        broker=replace(charter.broker, deadline=60),
    )
    told = changes(charter, other)
    assert any("rounds: 1 became 9" in line for line in told)
    assert "broker deadline: 600 became 60" in told
    assert any(line.startswith(f"{first}: fingerprint") for line in told)
    assert any("organisation 'Organisation " in line for line in told)
    assert json.dumps(told)
    assert set(roles_of(plan, charter.policy)) == set(charter.carriers)
