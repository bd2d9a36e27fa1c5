"""What every role of a run could see, and some of them together (O30)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from audits.evidence.steps import Case
from audits.report import words
from audits.report.models import RoleView
from protocols.disclosures._base.words import words_of
from protocols.disclosures._evaluated.ciphers import EVALUATED
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.disclosure import masked as sums_masked
from protocols.plan.learns import RECOMPUTED
from protocols.plan.steps import Part, Step
from protocols.policy.policy import FEWEST_OTHERS
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

_COLLUDING = "the total less what the colluders sent themselves"
_NOTHING_ELSE = "nothing else of a single client"
_STEERED = (
    " unless that client steers the model, which one alone can, and so reads single records of "
    "others in a total"
)
_TWO = (
    "of a total of three clients (beside those that the policy assumes to collude), less what both "
    "sent: the third one's update, {}"
)
_KEY = (
    "the epoch's key of what is compared or weighed, which a crafted upload brings out, and with "
    "it EVERY single message that is"
)
_WHOSE = {
    mixed: f"whose every {what} is, as the aggregator alone sees without a relay"
    for mixed, what in ((True, "mixture"), (False, "noised message"))
}
_REST = {
    mixed: f"which {what}s are none of theirs; if all but one of a round's clients tell, whose the "
    "rest is"
    for mixed, what in ((True, "mixture"), (False, "noised message"))
}
_PAIRS = (
    (
        "matcher and one client",
        "which of its quota of guesses are tags, in every epoch; whoever "
        "holds a tag is known again, so guesses of epochs and clients add up",
    ),
    ("matcher and one tag server", "nothing more than each alone"),
    ("matcher and both tag servers", "EVERY item of every client"),
    ("aggregator and both tag servers", "the totals of all cells: they make the canary's tag"),
    (
        "aggregator, matcher, one tag server and one client",
        "no more than matcher and client: the honest tag server's share stands in every tag, "
        "whatever the other one answers, so each guess costs one of the client's quota",
    ),
    (
        "aggregator and one client",
        "the totals of all cells, which the client reads anyway; for each item in the client's "
        "quota, which cells hold it, and who stands in them by name",
    ),
    (
        "all of a cell but one",
        "that one's vector; with a client outside, which items of that client's quota it holds",
    ),
)
_LISTS: dict[str, str | None] = {
    "matcher and one client": "EVERY published vector, and whose it is; which of the client's "
    "quota of guesses are tags, in every epoch; guesses of epochs and clients add up",
    "matcher and both tag servers": "EVERY item and every published vector of every client",
    "aggregator and both tag servers": "nothing more than each alone",
    "aggregator and one client": "whose vectors the client reads, and who of them holds which "
    "items of its quota: the aggregator says who is matched together, so two cohorts with one "
    "other in common, or but for one alike, name that one",
    "all of a cell but one": None,
}
"""What is otherwise, or is not there, where clients read single vectors (`published`)."""
_KEYED = "EVERY item of every client: it holds the key of tags"
_COORDINATE = "one coordinate of every compared vector a round, which a vector of its choice reads"


def role_views(case: Case) -> tuple[RoleView, ...]:
    """Return one view per role, then the network's and the stated collusions'.

    What a role sees is what the plan says that it learns from items which did leave.
    """
    received = _received(case)
    roles = [role for role in Role if case.roster.names(role)]
    own = case.roster.party(case.view.side).role if case.view.side else None
    views = [
        RoleView(
            viewer=str(role),
            received=received[str(role)] if not case.view.side or role is own else None,
            sees=tuple(_sees(case, role)),
        )
        for role in roles
    ]
    network = "sender, recipient, time and size of every envelope"
    if any(words.in_clear(item.guards) for item in case.plan.items):
        network += "; EVERYTHING in what left in clear"
    views.append(RoleView(viewer="network", received=None, sees=(network,)))
    return (*views, *_collusions(case))


def _received(case: Case) -> Counter[str]:
    roles = {party["name"]: party["role"] for party in case.roster.document()}
    return Counter(roles.get(party, "") for party, _ in case.ledger_index.of_kind("receipt"))


def _sees(case: Case, role: Role) -> Iterator[str]:
    left = {sent.item for sent in case.ledger_index.releases()}
    for item in case.plan.items:
        reaches = item.recipient in (str(role), EVERYONE) or role in item.learns
        said = item.learns.get(str(role)) or item.learns.get("everyone")
        if role is Role.CLIENT:
            said = said or item.learns.get("addressee") or item.learns.get("other clients")
        if item.id in left and reaches and said and said != "nothing":
            yield f"{item.id}: {said}"


def _with_the_authority(
    case: Case, results: Set[Part], *, masked: bool, keyed: bool
) -> Iterator[RoleView]:
    """Say what the key authority sees with one other, and what a client brings out with whom."""
    compared = Disclosure.SIMILARITY in results
    sums = (
        "no more than the aggregator alone: masks stay on single uploads"
        if masked
        else "EVERY single upload: nothing but the key keeps them apart"
    )
    every = "EVERY single message that is compared or weighed"
    seen = [every] if results else []
    seen += [f"of sums {sums}" if results else sums] if keyed else []
    if seen:
        yield RoleView(viewer="aggregator and key authority", received=None, sees=tuple(seen))
    watched = results and case.roster.names(Role.WITNESS)
    if watched:
        whole = (f"{every}: witnesses see ciphertexts, too",)
        yield RoleView(viewer="witness and key authority", received=None, sees=whole)
        yield RoleView(viewer="witness and one client", received=None, sees=(_KEY,))
    if compared:
        yield RoleView(viewer="key authority and one client", received=None, sees=(_COORDINATE,))


def _opened(lists: bool) -> Iterator[RoleView]:
    """Say what is seen where anybody makes the canary's tag, and so all keys."""
    more = " and every published vector" if lists else ""
    seen = f"EVERY item{more} of every client"
    yield RoleView(viewer="matcher alone", received=None, sees=(seen,))
    if not lists:
        seen = "the totals of all cells"
        yield RoleView(viewer="aggregator, of cells", received=None, sees=(seen,))
    for viewer, said in _PAIRS[-2:]:  # what tags and keys have no part in
        told = _LISTS[viewer] if lists else said
        if told is not None:
            yield RoleView(viewer=viewer, received=None, sees=(told,))


def _of_matching(case: Case) -> Iterator[RoleView]:
    """Say what those who make and compare tags see together (O24, O25)."""
    if not case.plan.all_of(Disclosure.MATCH, Step.COMPARE):
        return
    keyed = not case.roster.names(Role.TAG_SERVER)
    lists = bool(case.plan.all_of(Disclosure.MATCH, Step.TAKEN))
    if any(words.opens(item.guards) for item in case.plan.items):
        yield from _opened(lists)
        return
    for viewer, said in _PAIRS:
        if keyed and "tag server" in viewer:
            continue
        seen = _LISTS.get(viewer, said) if lists else said
        if keyed and viewer == "matcher and one client":
            seen = f"{_KEYED}; EVERY published vector" if lists else _KEYED
        if seen is not None:
            yield RoleView(viewer=viewer, received=None, sees=(seen,))


def _collusions(case: Case) -> Iterator[RoleView]:
    plan = case.plan
    masked, keyed = sums_masked(plan.items), plan.all_of(Disclosure.SUM, Step.OPEN)
    unsafe = any(words.in_clear(item.guards) for item in plan.items)
    results = {item.part for item in plan.all_of(step=Step.OPEN)} & set(EVALUATED)
    yield from _with_the_authority(case, results, masked=bool(masked), keyed=bool(keyed))
    relayed = [item for item in case.plan.items if words.relayed(item.guards)]
    if relayed:
        kinds = tuple(dict.fromkeys(words.mixed(item.guards) for item in relayed))
        for viewer, known in (
            ("aggregator and relay", _WHOSE),
            ("aggregator and other clients", _REST),
        ):
            yield RoleView(
                viewer=viewer, received=None, sees=tuple(known[mixed] for mixed in kinds)
            )
    yield from _of_matching(case)
    for disclosure in sorted({item.disclosure for item in plan.items}):
        for viewer, told in words_of(disclosure).together(case.policy.chain(disclosure)).items():
            yield RoleView(viewer=viewer, received=None, sees=(told,))
    count = case.policy.colluders
    hidden = [item for item in plan.items if item.disclosure is Disclosure.SUM and not item.unsafe]
    if hidden and case.policy.minimum_cohort == FEWEST_OTHERS:
        bare = any(item.noise is None for item in hidden)
        told = _TWO.format("exactly" if bare else "under the noise of the total")
        yield RoleView(viewer="two clients", received=None, sees=(told,))
    if unsafe:
        yield RoleView(
            viewer="aggregator alone", received=None, sees=("EVERY single message in clear",)
        )
    elif masked or results:
        who = f"aggregator and {count} clients" if count else "aggregator and one client"
        rest = "" if count else "; the policy assumes that no client colludes"
        more = results or plan.all_of(step=Step.COMPARE)
        steered = _STEERED if any(item.model == RECOMPUTED for item in plan.items) else ""
        sums = _COLLUDING if more else f"{_COLLUDING}; {_NOTHING_ELSE}{steered}"
        seen = [f"{sums}{rest}"] if masked else []
        seen += [_KEY] if results else []
        yield RoleView(viewer=who, received=None, sees=tuple(seen))
    group = case.exchanges.group(1) if masked else None
    if group is not None:
        others = "aggregator, key authority" if keyed else "aggregator"
        yield RoleView(
            viewer=f"{others} and {group.threshold} of the clients that hold a client's shares",
            received=None,
            sees=("that client's uploads",),
        )
