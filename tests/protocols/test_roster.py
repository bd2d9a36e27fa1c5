"""The pinned list of parties, and the digests that name a run and a cohort."""

from dataclasses import replace

import pytest

from protocols.errors import BadEnvelope, SecureFglError
from protocols.wire.roles import Role
from protocols.wire.roster import (
    AGGREGATOR_NAME,
    EVERYONE,
    Identity,
    Roster,
    cohort_digest,
    run_id,
)

NAMES = [f"bank-{i}" for i in range(11)]


def parties(clients=NAMES, **others):
    found = [Identity.generate(name, Role.CLIENT).party for name in clients]
    return found + [Identity.generate(n, role).party for n, role in others.items()]


@pytest.fixture(scope="module")
def roster():
    return Roster(parties(aggregator=Role.AGGREGATOR, authority=Role.KEY_AUTHORITY))


def test_clients_are_sorted_and_found(roster):
    assert roster.clients == tuple(sorted(NAMES))
    assert roster.one(Role.AGGREGATOR).name == AGGREGATOR_NAME
    with pytest.raises(BadEnvelope):
        roster.party("mallory")
    with pytest.raises(BadEnvelope):
        roster.one(Role.CLIENT)


def test_masks_name_exactly_the_members(roster):
    for members in ((), ("bank-0",), ("bank-10", "bank-7", "bank-3"), NAMES):
        mask = roster.mask(members)
        assert len(mask) == 2
        assert roster.unmask(mask) == tuple(sorted(members))
    for mask in (b"\x00\x08", b"\xff\xff", b"\x00\x80"):
        with pytest.raises(BadEnvelope):
            roster.unmask(mask)


BROKEN = {
    "a name twice": lambda: parties(["a", "b", "a"], aggregator=Role.AGGREGATOR),
    "two aggregators": lambda: parties(["a"], x=Role.AGGREGATOR, y=Role.AGGREGATOR),
    "two authorities": lambda: parties(
        ["a"], x=Role.AGGREGATOR, y=Role.KEY_AUTHORITY, z=Role.KEY_AUTHORITY
    ),
    "nobody may be called everyone": lambda: parties([EVERYONE, "a"], x=Role.AGGREGATOR),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_roster_that_is_not_what_it_says_is_refused(case):
    with pytest.raises((ValueError, SecureFglError)):
        Roster(BROKEN[case]())


@pytest.mark.parametrize("half", ["verify", "seal"])
@pytest.mark.parametrize("role", [Role.WITNESS, Role.KEY_AUTHORITY, Role.CLIENT])
def test_o4_nobody_stands_in_the_roster_under_two_names(half, role):
    """Whoever hands out the roster must not be its own witness, or its own key authority."""
    known = parties(aggregator=Role.AGGREGATOR)
    stranger = Identity.generate("second-name", role).party
    assert Roster([*known, stranger]).names(role)
    same = replace(stranger, **{half: getattr(known[-1], half)})
    with pytest.raises(BadEnvelope, match="same key"):
        Roster([*known, same])


def test_the_digest_names_every_key(roster):
    again = Roster(roster._parties[n] for n in reversed(sorted(roster._parties)))
    assert again.digest == roster.digest
    other = Identity.generate("bank-0", Role.CLIENT).party
    changed = Roster([*(p for n, p in roster._parties.items() if n != "bank-0"), other])
    assert changed.digest != roster.digest
    assert "verify" in roster.document()[0]


def test_a_run_is_named_by_everything_in_it(roster):
    other = Roster(parties(aggregator=Role.AGGREGATOR))
    ids = {
        run_id(nonce, chosen, plan, policy)
        for nonce in (bytes(16), b"\1" * 16)
        for chosen in (roster, other)
        for plan in ("p", "q")
        for policy in ("p", "q")
    }
    assert len(ids) == 16
    assert all(len(i) == 32 for i in ids)


def test_o4_a_cohort_digest_names_run_plan_round_attempt_and_members():
    base = ("run", "plan", 1, 1, ("a", "b", "c"))
    assert cohort_digest(*base) == cohort_digest("run", "plan", 1, 1, ("c", "a", "b"))
    others = [
        ("other", "plan", 1, 1, ("a", "b", "c")),
        ("run", "other", 1, 1, ("a", "b", "c")),
        ("run", "plan", 2, 1, ("a", "b", "c")),
        ("run", "plan", 1, 2, ("a", "b", "c")),
        ("run", "plan", 1, 1, ("a", "b")),
        ("run", "plan", 1, 1, ("a", "b", "d")),
        ("run", "plan", 1, 1, ("ab", "c")),
    ]
    assert len({cohort_digest(*o) for o in (base, *others)}) == len(others) + 1
