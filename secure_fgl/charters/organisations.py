"""Which roles are of two organisations, and how many organisations a total rests on.

Two roles are kept apart where the threat model counts on it that they do not work together
(docs/threat-model.md). Clients of one organisation do: all but one of them are colluders, which a
policy counts in `colluders`. With as many of them in the policy, every cohort that it lets through
rests on `minimum_cohort` organisations beside the receiver's, whoever vanishes. Where the
aggregator, a witness or a tag server is of a client's organisation, all clients of that
organisation are colluders: they answer holders' questions both ways for it (O7). What is compared
or weighed is refused where a client's organisation is the aggregator's, the key authority's or a
witness's, since a client that works with any of them brings out the key of all that is compared or
weighed in an epoch (LIMITATIONS.md, L1.2). No client is of the matcher's organisation: the two
together guess items, and learn by name who holds them.

Organisations are what a charter says. That two names are one owner no program knows; names that
differ in capitals, blanks, accents or signs alone are one. Names that only look alike, in Cyrillic
or Greek letters that are drawn as Latin ones are, or with a Latin i or j without its dot, are
refused. What that does not see: letters of one script that look alike (I, l and 1; O and 0; rn and
m), two letters drawn as one, letters of other scripts (Armenian, Cherokee, Coptic and all others),
letters with strokes or hooks beside those without, and names that differ and sound like one
organisation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from protocols.disclosures.names import Disclosure
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role

__all__ = ["COUNTED", "FEWEST", "THREE", "alike", "crowded", "insiders", "same_owner", "too_few"]

FEWEST = 3
"""Organisations with data, at least, under any policy: of a total of two each reads the other's."""

THREE = (
    "a total of three is to each of them, less its own part, the total of two, and two that pool "
    "theirs read the third's (O10, ADR 0092); let a fourth holder of data take part with data of "
    "its own: not one hospital twice, which counts once, and nobody without data, whose part the "
    "others know to be nothing; or let all three agree on a policy that says minimum_cohort: 2"
)
"""Why three organisations are refused unless a policy asks for them, and what can be done."""

_APART: tuple[tuple[Role, Role, str], ...] = (
    (
        Role.AGGREGATOR,
        Role.KEY_AUTHORITY,
        "together they open what is compared or weighed, and uploads without masks",
    ),
    (Role.AGGREGATOR, Role.WITNESS, "it would check itself, and could have a single upload opened"),
    (Role.AGGREGATOR, Role.RELAY, "it would know whose every message is"),
    (Role.AGGREGATOR, Role.MATCHER, "it would know by name who has how much in common with whom"),
    (Role.AGGREGATOR, Role.TAG_SERVER, "tags are closed by two who are not the aggregator"),
    (Role.KEY_AUTHORITY, Role.WITNESS, "together they open everything compared or weighed"),
    (Role.MATCHER, Role.TAG_SERVER, "who compares tags must not make them"),
    (Role.TAG_SERVER, Role.TAG_SERVER, "with both shares of the key all tags are open"),
    (Role.WITNESS, Role.WITNESS, "two witnesses of one organisation are one"),
)

COUNTED = frozenset({Role.AGGREGATOR, Role.WITNESS, Role.TAG_SERVER})
"""Roles whose organisation's own clients are colluders, all of them: they work with the one that
answers holders' questions for them, checks it, or closes their tags."""

_OPENERS = frozenset({Role.AGGREGATOR, Role.KEY_AUTHORITY, Role.WITNESS})
"""Roles of which each, with one client, brings out the key of what is compared or weighed."""


_DRAWN_ALIKE = str.maketrans(
    "АВСЕԌНІЈКМОРЅТѴԜХУҮҺԚӀЬӔӘԐаԁеһіјӏорԛгѕѵԝхуүсꙇвкмнтпԍӕәԑΑΒΕϜΖΗΙͿΚΜϺΝΟΡΤΥΧϷαβειϳκνορστυχγϸηıȷɑɡ",
    "ABCEGHIJKMOPSTVWXYYHQIbÆƏƐadehijlopqrsvwxyycibkmhtngæəɛABEFZHIJKMMNOPTYXÞaßeijkvopotuxyþnijag",
)
"""Letters that fonts draw as Latin ones (UTS 39, confusables): Cyrillic and Greek, large and small,
with the small ones that are drawn as Latin small capitals, and Latin ones without their dot."""


def same_owner(organisation: str) -> str:
    """Return what is the same for two names of one organisation, or for two that look alike."""
    bare = unicodedata.normalize("NFKD", organisation)
    return _plain(bare.translate(_DRAWN_ALIKE))


def _plain(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def alike(organisations: Iterable[str]) -> Iterator[str]:
    """Say which names are of other letters and look the same."""
    seen: dict[str, str] = {}
    for name in sorted({*organisations}):
        other = seen.setdefault(same_owner(name), name)
        bare = (_plain(unicodedata.normalize("NFKD", text)) for text in (other, name))
        if len({*bare}) > 1:
            yield f"{other!r} and {name!r} look alike and are of other letters"


def crowded(
    organisations: Mapping[str, str],
    roles: Mapping[str, Role],
    policy: PrivacyPolicy,
    evaluated: Collection[Disclosure] = (),
) -> Iterator[str]:
    """Say which organisation is in two roles that are kept apart, or counts for too many clients.

    Args:
        organisations: by party name, of every party.
        roles: by party name.
        policy: of the run.
        evaluated: what is compared or weighed on ciphertexts in it.
    """
    owned: dict[str, list[str]] = {}
    for name in sorted(roles):
        if roles[name] is not Role.CLIENT:
            owned.setdefault(same_owner(organisations[name]), []).append(name)
    for names in owned.values():
        for one, other in combinations(names, 2):
            yield from _together(one, other, roles, organisations[one])
    if (inside := insiders(organisations, roles, _OPENERS)) and evaluated:
        yield (
            f"{', '.join(inside)}: of the organisation of the aggregator, the key authority or a "
            "witness, and a client that works with any of them brings out the key of what is "
            f"compared or weighed ({' and '.join(evaluated)}): another organisation is needed"
        )
    if inside := insiders(organisations, roles, {Role.MATCHER}):
        yield (
            f"{', '.join(inside)}: of the matcher's organisation, and a client that works with it "
            "learns by name who holds which of the items it guesses: another organisation is needed"
        )
    # Where sums are in clear the aggregator reads uploads without a client's help.
    helped = {Role.TAG_SERVER} if Disclosure.SUM in policy.unsafe else COUNTED
    theirs = {same_owner(organisations[name]) for name in insiders(organisations, roles, helped)}
    clients = [name for name, role in roles.items() if role is Role.CLIENT]
    yield from _counted([organisations[name] for name in clients], len(theirs), policy)


def insiders(
    organisations: Mapping[str, str],
    roles: Mapping[str, Role],
    helped: Collection[Role] = COUNTED,
) -> list[str]:
    """Return the clients that are of the organisation of a party in such a role, sorted."""
    theirs = {same_owner(organisations[name]) for name, role in roles.items() if role in helped}
    clients = sorted(name for name, role in roles.items() if role is Role.CLIENT)
    return [name for name in clients if same_owner(organisations[name]) in theirs]


def _together(one: str, other: str, roles: Mapping[str, Role], organisation: str) -> Iterator[str]:
    for first, second, why in _APART:
        if (roles[one], roles[other]) in ((first, second), (second, first)):
            yield (
                f"{one} and {other} are both of {organisation!r}, and {why}: two organisations are "
                "needed"
            )


def _counted(owners: Sequence[str], inside: int, policy: PrivacyPolicy) -> Iterator[str]:
    """Say which number of a policy is below what its clients' organisations ask for.

    Args:
        owners: the organisation of each client.
        inside: how many of these organisations are in a role that counts them (`COUNTED`).
        policy: of the run.
    """
    count = len({*map(same_owner, owners)})
    twice, more = len(owners) - count, len(owners) - count + inside
    wanted = policy.minimum_cohort + 1
    if count < wanted:
        counted = (
            f"its {len(owners)} clients are of {_organisations(count)}, of which each counts once"
        )
        yield f"{counted}, and policy {policy.name!r} wants {wanted} ({THREE})"
    elif more > policy.colluders:
        better = "one client of each take part" if twice else "another organisation have that role"
        helping = f", {inside} of them with a role of trust beside" if inside else ""
        yield (
            f"its {len(owners)} clients are of {_organisations(count)}{helping}, and policy "
            f"{policy.name!r} lets cohorts of {policy.smallest_cohort} clients through, of which "
            f"{policy.smallest_cohort - more} may be of organisations that work with nobody: say "
            f"colluders: {more} in the policy, or let {better}"
        )


def too_few(owners: Iterable[str]) -> str:
    """Return why so many organisations with data are too few under any policy; empty if not.

    Args:
        owners: the organisation of each client.
    """
    count = len({*map(same_owner, owners)})
    if count >= FEWEST:
        return ""
    return (
        f"{_organisations(count)} with data, and a total is over {FEWEST} at least: of a total "
        f"of two each one, less its own part, reads the other's. Better still are four: {THREE}"
    )


def _organisations(count: int) -> str:
    return "1 organisation" if count == 1 else f"{count} organisations"
