"""SUM: its rules, plan, words and protection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.homomorphic.he import Scheme
from crypto.masks import container
from crypto.masks import masked as masked_words
from crypto.noise import sampler
from crypto.samplers import Stream, entropy
from crypto.signing import SIGNATURE_BYTES
from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Limits, Rules
from protocols.disclosures._base.words import NETWORK, Chain, Planned, Words
from protocols.disclosures._checked.totals import Place, history, sum_check, width_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.addressed import blind_of, turns
from protocols.disclosures.sum.guards import RecordNoise, encryption
from protocols.disclosures.sum.layout import Ring, SumLayout, sum_layout, sum_ring
from protocols.disclosures.sum.layout import Words as RingWords
from protocols.disclosures.sum.masks import check_mask
from protocols.disclosures.sum.messages import (
    AllHere,
    BlindTotal,
    Opened,
    OpenRequest,
    SelfShares,
    Shares,
    Survivors,
    Vote,
    Votes,
)
from protocols.disclosures.sum.view import Summands
from protocols.errors import LocalProtocolError, NotInPlan, PolicyError, UnfitMessage
from protocols.forms import Exchange, Form
from protocols.keys.groups import (
    epochs,
    planned_degree,
    planned_one_answer,
    planned_voters,
    slot_of,
    slots,
)
from protocols.keys.pairs import pair_box_bytes, row_bytes
from protocols.messages import Message, SumMessage, addressed
from protocols.plan.builder import DOWN, UP, PlanBuilder, Times
from protocols.plan.learns import learns
from protocols.plan.plan import CountPlan, Item, Layout, NoisePlan, message_plan
from protocols.plan.steps import Service, Step, Way, item_id
from protocols.policy.admission import asked_holders, check_own_noise, has_weights, own_objection
from protocols.policy.guard import Guard, find, guard_of
from protocols.policy.guards import Clip, OwnNoise
from protocols.policy.policy import FEWEST_OTHERS
from protocols.privacy.noising import SAMPLERS, check_noise, noise_for, noise_in
from protocols.privacy.own_noise import finite
from protocols.privacy.own_target import check_own, of_exchanges, own_noises
from protocols.privacy.record_noise import add_counted, check_counted, counted_of, plan_counted
from protocols.wire.control import PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.envelope import NONE, Header, Where, header_bytes
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

# Which chains protect a sum, and which sums rest on enough clients.


class SumRules(Rules):
    """Integers, masked or encrypted or both; noise is shared by the sum."""

    protecting = frozenset({"he", "ckks", "mask", "unsafe_clear"})
    applied = protecting | {"clip", "quantise", "noise", "own_noise", "record_noise", "seal"}
    order = "clip, quantise, noise, own_noise or record_noise, mask, he or ckks, seal"

    def check(self, chain: Chain) -> None:
        """Refuse noise without masks, without a bound, and sums that are not of integers."""
        if find(chain, "record_noise") and not find(chain, "mask"):
            raise ValueError("'record_noise' needs 'mask' after it, as counts of a client do")
        if find(chain, "noise") and not find(chain, "mask"):
            # Alone, each upload would carry one share of the noise, and epsilon would be larger.
            raise ValueError("'noise' needs 'mask' after it: it is shared by the sum")
        if not find(chain, "quantise"):
            raise ValueError("'clip' and 'quantise' are needed: sums are sums of integers")
        clip = guard_of(chain, Clip)
        if find(chain, "noise") and not (clip and clip.norm == "l2"):
            raise ValueError("'noise' needs 'clip' with norm l2 before it (O14)")
        if own := guard_of(chain, OwnNoise):
            if not (clip and clip.norm == "l2"):
                raise ValueError("'own_noise' needs 'clip' with norm l2 before it (O14)")
            if own.mechanism == "sqkr":
                raise ValueError("'sqkr' gives no sum; take discrete_gaussian or discrete_laplace")
            if find(chain, "unsafe_clear"):
                raise ValueError("'own_noise' needs 'mask' after it: messages in clear are NOISED")

    def check_policy(self, chain: Chain, policy: Limits) -> None:
        """Refuse a delta that lets whole clients out."""
        check_own_noise(guard_of(chain, OwnNoise), policy.smallest_cohort)

    def objection(self, kind: type[Message], form: Form[Any], policy: Limits) -> str | None:
        """Refuse rows of too few clients (O12), and exact counts under noise."""
        chain = policy.rules.get(kind.disclosure, ())
        if addressed(kind) and not any(find(chain, name) for name in ("mask", "unsafe_clear")):
            return (
                f"message {kind.__name__} is for one client to read, and without 'mask' nothing "
                "keeps the aggregator from having the total opened without that client's blind"
            )
        noised = bool({"noise", "own_noise"} & {guard.guard for guard in chain})
        retold = addressed(kind) and any(exchange.follows for exchange in form.exchanges)
        if retold and not noised and not find(chain, "unsafe_clear"):
            return (
                f"message {kind.__name__} is for one client to read, which tells others what "
                "follows from it: totals that lack one client each, without noise, tell of each"
            )
        twice = issubclass(kind, SumMessage) and kind.twice
        if twice and not noised and not find(chain, "unsafe_clear"):
            return (
                f"message {kind.__name__} holds one value under two weights, and both totals tell, "
                "without noise, sums of fewer clients: of one where all others weigh alike"
            )
        if not noised and (asks := asked_holders(policy)):
            if any(field.held for field in kind.fields):
                least = form.holders - addressed(kind)  # who reads a total sends no row
                if least < policy.holders + policy.colluders:
                    may = f"may rest on {least} of the clients"
                    return f"rows of message {kind.__name__} {may}, and {asks}"
            elif form.rows and has_weights(kind, form.exchanges):
                of = "has weights of items that one client may hold"
                return f"message {kind.__name__} {of}, and {asks}"
        if noised and any(field.wire == "u8" for field in kind.fields):
            return f"message {kind.__name__} holds exact counts, which its noise cannot cover"
        return own_objection(kind, chain)


RULES = SumRules()


# What plans say of sums: what the total tells, and of whom it may (O1, O4, O12).

ACTIVE_AGGREGATOR = "an active aggregator can have a single upload opened"
KEY_THEFT = (
    "one crafted ciphertext, opened, gives an active aggregator the run's secret key and so every "
    "upload of the run; a dishonest client can bring the key out through the total"
)
HELD = (
    "{}: a row of the total rests on at least {} clients if the aggregator is semi-honest: who "
    "holds an item is counted with the first sum, which it alone reads, so no client can check "
    "what it is told; others' counts are their word; who vanishes later is missing. The count is "
    "disclosed: a one says that some client holds the item, and counts of two runs that differ by "
    "one client name its items (O12)"
)
CHANGES = {
    "any": "totals of one run may differ by one client (cohort_changes: any): an aggregator that "
    "leaves a client out of a round, or says that it vanished, and hands out nearly the same model "
    "again reads that client's own update from the difference, exactly; cohort_changes: fixed "
    "refuses such rounds",
    "floor": "no two totals of one run differ by fewer than {} clients, and no more of them that "
    "one client, or a key authority, is shown can be combined into one of fewer (cohort_changes: "
    "floor); a round from which fewer vanish is lost, and so are those in which they are away",
    "fixed": "no two totals of one run differ by a few clients: they are of the very same ones, or "
    "have none in common, as every client and a key authority see to (cohort_changes: fixed); each "
    "round in which a client is away is lost",
}
"""What a plan says of a policy's `cohort_changes`."""
WHOLE = (
    "no two totals of one run differ by a few clients: as many take part as the smallest cohort "
    "holds, so each total is of all of them, and each round in which a client is away is lost"
)
"""The same where nobody can be left out, whatever `cohort_changes` is."""
POOLED = (
    "a total may be of three clients beside the assumed colluders, and a weighed row too "
    "(minimum_cohort: 2): less one's own part it is of two others, and any two clients that pool "
    "what they have read the third one's update from it in every round, {}"
)
"""What a policy costs that asks for two others."""
SINGLE = (
    "an item's row with a single contributor is that user's own: in matrix factorisation it gives "
    "the user's vector and the ratings of such items, and the vector tells which rows of several "
    "users it is in"
)


READERS = "all clients read it too, as they compute the model from the total"


ONE_READER = (
    "a total that one client reads tells it what the sum of all others says; with the clients that "
    "collude with it, what the sum of the rest says (O10, O11)"
)


def read_by_one(clients: Sequence[str], *, encrypted: bool) -> dict[str, str]:
    """Return who learns what of a summand whose total one of these clients reads."""
    return {
        "aggregator": "uniform noise, whose turn it is to read, and who took part",
        **({"key_authority": "uniform noise, and who took part when"} if encrypted else {}),
        "addressee": f"only the total of all others, one client {turns(clients)}",
        "other clients": "nothing",
        "network": NETWORK,
    }


def handed_to_one(clients: Sequence[str]) -> dict[str, str]:
    """Return who learns what where totals are handed to the clients that read them."""
    return {"client": "the total of all others, where it was its turn to read", "network": NETWORK}


class SumWords(Words):
    """Only the cohort's total is opened."""

    limits = ("no two totals of one run", "totals of one run may", "a total may be of three")

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what one client's summand tells it."""
        noised = "noised " if find(chain, "noise") or find(chain, "own_noise") else ""
        honest = "" if find(chain, "mask") else ", if it is semi-honest"
        known = {
            "aggregator": f"only the cohort's {noised}total (and who took part){honest}",
            "key_authority": "uniform noise, and who took part when",
            "other clients": "nothing",
            "network": network,
        }
        if encryption(chain) is None:
            del known["key_authority"]  # there is none
        return known

    def warnings(self, plan: Planned) -> list[str]:
        """Warn of encryption without masks, and of entries with a single contributor (O12)."""
        opened = any((i.part, i.step) == (Disclosure.SUM, Step.OPEN) for i in plan.items)
        found = [ACTIVE_AGGREGATOR, KEY_THEFT] if opened and not masked(plan.items) else []
        found += _told_apart(plan)
        rows = plan.rows or {}
        found += [ONE_READER] if any(item.reader for item in plan.items) else []
        for item in filter(_vector_sum, plan.items):
            holders = {rows[message.name] for message in item.messages if message.name in rows}
            least = min(holders, default=1) - bool(item.reader)
            if least > 1:
                found.append(HELD.format(item.id, least))
                continue
            told = _single(item) + [SINGLE] * bool(holders) + [READERS] * (item.checked > 0)
            found.append(
                f"{item.id}: an entry of the total may have a single contributor "
                f"({'; '.join(told)}); the plan cannot exclude it (O12)"
            )
        return found


def _told_apart(plan: Planned) -> list[str]:
    """Say what totals tell of one client: once they are subtracted, and where they are of three."""
    sums = [i for i in plan.items if (i.part, i.step) == (Disclosure.SUM, Step.UP)]
    hidden, found = [item for item in sums if not item.unsafe], list[str]()
    bare = any(item.noise is None for item in hidden)
    if plan.policy.minimum_cohort == FEWEST_OTHERS and hidden:
        found.append(POOLED.format("exactly" if bare else "under the noise of the total"))
    rule = plan.policy.cohort_changes
    if rule == "any":
        return [*found, WHOLE if plan.fewest else CHANGES[rule]] if bare else found
    text = CHANGES[rule].format(plan.apart or plan.policy.smallest_cohort)
    return [*found, text] if sums else found


def masked(items: Sequence[Item]) -> bool:
    """Tell whether sums carry masks; of a plan without sums, whether what neighbours send does.

    Pairs of clients agree on secrets for either.
    """
    places = {(item.part, item.step) for item in items}
    if (Disclosure.SUM, Step.UP) in places:
        return (Disclosure.SUM, Step.SURVIVORS) in places
    return (Service.PAIRS, Step.CALL) in places


def _vector_sum(item: Item) -> bool:
    fields = (field for message in item.messages for field in message.fields)
    plain = item.disclosure is Disclosure.SUM and item.noise is None
    return item.step is Step.UP and plain and any(f.shape for f in fields)


def _single(item: Item) -> list[str]:
    """Say, for each kind of vector in a sum, what an entry with one contributor tells."""
    fields = [field for message in item.messages for field in message.fields if field.shape]
    found = []
    if any(field.dtype != "u8" for field in fields):
        found.append("a weight that only one client moved: of a feature or an item only it has")
    counts = [field.name for field in fields if field.dtype == "u8"]
    if counts:
        found.append(f"{', '.join(counts)}: a count of one tells where that one record falls")
    return found


WORDS = SumWords(Disclosure.SUM)


# The plan items of what takes masks off a sum, opens it, and lets clients agree on its secrets.

_CLIENT, _AGGREGATOR, _AUTHORITY = str(Role.CLIENT), str(Role.AGGREGATOR), str(Role.KEY_AUTHORITY)


def _plan_sharing(planner: PlanBuilder, name: str, times: Times) -> None:
    """Plan what takes the masks off one sum in two steps: the survivor list, and the shares."""
    often = planner.held(times)  # with disjoint clusters, a holder is asked for each of them
    part, way = Disclosure.SUM, Way.TWO_STEPS
    holders = {"holders": planned_degree(*planner.group) + 1}
    kinds, told, sealed = (Survivors,), Disclosure.RELEASED, Disclosure.SEALED
    said = {"client": "whose uploads are there", "network": "sender, recipient, time"}
    planner.add(
        name, part, Step.SURVIVORS, DOWN, kinds, told, often, dims=holders, said=said, way=way
    )
    said = {"aggregator": "that this client saw the list"}
    planner.add(name, part, Step.VOTE, UP, (Vote,), sealed, often, said=said, way=way)
    said = {"client": "who saw the same list"}
    shown = {"voters": planned_voters(*planner.group)}
    planner.add(
        name, part, Step.VOTES, DOWN, (Votes,), sealed, often, dims=shown, said=said, way=way
    )
    said = {"aggregator": "shares of the masks of this one sum"}
    planner.add(
        name, part, Step.SHARES, UP, (Shares,), sealed, often, dims=holders, said=said, way=way
    )


def _plan_one_answer(planner: PlanBuilder, name: str, times: Times) -> None:
    """Plan what takes them off in one answer, where nobody is missing (ADR 0035)."""
    if not planned_one_answer(*planner.group):
        return
    often, part, way = planner.held(times), Disclosure.SUM, Way.ONE_ANSWER
    holders = {"holders": planned_degree(*planner.group) + 1}
    kinds, told, sealed = (AllHere,), Disclosure.RELEASED, Disclosure.SEALED
    said = {"client": "that all uploads are there", "network": "sender, recipient, time"}
    planner.add(
        name, part, Step.ALL_HERE, DOWN, kinds, told, often, dims=holders, said=said, way=way
    )
    said = {"aggregator": "that this client saw the list, and shares of self-masks of this sum"}
    planner.add(
        name,
        part,
        Step.SELF_SHARES,
        UP,
        (SelfShares,),
        sealed,
        often,
        dims=holders,
        said=said,
        way=way,
    )


def _plan_opening(
    planner: PlanBuilder, name: str, ring: Ring, total: int, times: tuple[int, int], *, read: bool
) -> None:
    """Plan the opening of one encrypted sum; `read`: by one client, under its blind."""
    often = planner.often(times)
    part = Disclosure.SUM
    upload = item_id(name, part, Step.UP, _CLIENT)
    sender = header_bytes(upload, planner.longest, planner.name(_AGGREGATOR))
    headers = len(planner.clients) * (2 + sender + SIGNATURE_BYTES)
    opened = ring.size * 8
    planner.add(
        name,
        part,
        Step.OPEN,
        (_AGGREGATOR, _AUTHORITY),
        (OpenRequest,),
        Disclosure.SEALED,
        often,
        dims={"he_total": total, "he_headers": headers},
        said={"key_authority": "uniform noise, and who took part when"},
    )
    planner.add(
        name,
        part,
        Step.OPENED,
        (_AUTHORITY, _AGGREGATOR),
        (Opened,),
        Disclosure.SEALED,
        often,
        dims={"he_opened": opened},
        said={"aggregator": "uniform noise" if read else "only the cohort's total"},
    )


def _plan_pairs(planner: PlanBuilder, often: int, places: int) -> None:
    """Plan what clients agree on in every epoch, so that their masks cancel."""
    degree = planned_degree(*planner.group)
    boxes = {"pair_boxes": degree * pair_box_bytes(places)}
    rows = {"pair_rows": places * row_bytes(degree)}
    up, down, times = (_CLIENT, _AGGREGATOR), (_AGGREGATOR, _CLIENT), (0, often)
    sealed, part = Disclosure.SEALED, Service.PAIRS
    planner.add("", part, Step.CALL, down, (PairCall,), Disclosure.PUBLIC, times, said={})
    said = {"aggregator": "size only", "addressee": "half of a secret, and shares of seeds"}
    planner.add("", part, Step.BOXES, up, (PairBoxes,), sealed, times, dims=boxes, said=said)
    planner.add("", part, Step.DOWN, down, (PairDown,), sealed, times, dims=boxes, said=said)
    said = {"aggregator": "nothing, until enough holders say that this client vanished"}
    planner.add("", part, Step.ROWS, up, (PairRows,), sealed, times, dims=rows, said=said)


class SumPlanning(Planning):
    """Integers in a ring; masks and encryption add what takes them off."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the summands of an Ask, and what opening their total takes."""
        chain = plan.policy.chain(self.disclosure)
        layout, noise = sum_layout(kinds, chain, plan.dims), _noise(plan)
        checked = _checked(plan) if plan.models.checked_kinds(name) else 0
        counted = _counted(plan) if any(True for _ in layout.noised()) else None
        margin = max(added.margin if added else 0 for added in (noise, counted))
        ring = _ring(plan, layout, margin, checked=checked > 0)
        size = ring.wire_bytes
        if encryption(chain):
            scheme = _scheme(plan)
            size = ring.size // scheme.degree * scheme.ciphertext_bytes
        place = (name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)
        said = _readers(plan, chain) if checked else None
        read = any(map(addressed, kinds))
        if read and not find(chain, "unsafe_clear"):
            said = read_by_one(plan.clients, encrypted=encryption(chain) is not None)
        plan.add(
            *place,
            body=size,
            layout=layout,
            noise=noise,
            counted=counted,
            checked=checked,
            reader="client" if read else "",
            said=said,
        )
        if find(chain, "mask"):
            _plan_sharing(plan, name, times)
            _plan_one_answer(plan, name, times)
        if encryption(chain):
            _plan_opening(plan, name, ring, size, times, read=read)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds a total under its reader's blind."""
        return BlindTotal if addressed(kind) else kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the size of a total that an Ask hands to the client that reads it."""
        (kind,) = (kind for kind in exchange.given if kind.disclosure is self.disclosure)
        chain = plan.policy.chain(self.disclosure)
        layout, noise = sum_layout((kind,), chain, plan.dims), _noise(plan)
        counted = _counted(plan) if any(True for _ in layout.noised()) else None
        margin = max(added.margin if added else 0 for added in (noise, counted))
        ring = _ring(plan, layout, margin, checked=False)
        masked = find(chain, "mask") is not None
        return {"blind_total": ring.wire_bytes if masked else 8 * ring.length}

    def handed_said(self, plan: PlanBuilder) -> dict[str, str] | None:
        """Return who learns what where an Ask hands totals to the clients that read them."""
        return handed_to_one(plan.clients)

    def epoch(self, plan: PlanBuilder, planned: Sequence[Item]) -> None:
        """Add what clients agree on, so that their masks cancel."""
        places = len(slots(planned, plan.rounds, plan.policy, 0))
        masked = find(plan.policy.rules.get(self.disclosure, ()), "mask") is not None
        if (places and masked) or plan.between_neighbours:
            _plan_pairs(plan, epochs(plan.rounds, plan.policy), places)


def total_sizes(plan: PlanBuilder) -> dict[str, int]:
    """Return the sizes of a total that a client computes the model from, and of its check."""
    chain, length = plan.policy.chain(Disclosure.SUM), _checked(plan)
    layout = sum_layout(plan.models.totals, chain, plan.dims)
    noise, counted = _noise(plan), _counted(plan)
    margin = max(added.margin if added else 0 for added in (noise, counted))
    ring = _ring(plan, layout, margin, checked=True)
    one = container(ring.modulus).itemsize
    return {"model_total": length * width_of(ring), "model_check": ring.words * one}


def _readers(plan: PlanBuilder, chain: tuple[Guard, ...]) -> dict[str, str]:
    """Return who learns what of a sum whose total all clients are handed."""
    names = ", ".join(kind.__name__ for kind in plan.models.totals)
    known = learns(Disclosure.SUM, chain, up=True)
    return {**known, "other clients": f"the cohort's total of {names}, to compute the model"}


def _checked(plan: PlanBuilder) -> int:
    """Return how many integers of the sum that moves the model have a check."""
    chain = plan.policy.chain(Disclosure.SUM)
    return sum_layout(plan.models.totals, chain, plan.dims).length


def _scheme(plan: PlanBuilder) -> Scheme:
    if plan.scheme is None:
        raise ValueError("an encrypting chain needs an encryption scheme")
    return plan.scheme


def _noise(plan: PlanBuilder) -> NoisePlan | None:
    """Return the noise of every sum of the run: each spends its share of one target."""
    chain = plan.policy.rules.get(Disclosure.SUM, ())
    if not noise_in(chain):
        return None
    if guard_of(chain, OwnNoise):
        sent = of_exchanges(plan.exchanges, plan.dims, plan.rounds)
        return own_noises(plan.policy, sent, len(plan.clients)).get(Disclosure.SUM)
    found = []
    for exchange in plan.exchanges:
        kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
        if kinds:
            found.append((sum_layout(kinds, chain, plan.dims), exchange.times(plan.rounds)))
    read = any(exchange.addressed for exchange in plan.exchanges)
    return noise_for(found, plan.policy, len(plan.clients), read=read)


def _counted(plan: PlanBuilder) -> CountPlan | None:
    """Return the noise of every count of single records: all of the run share one target."""
    guard = guard_of(plan.policy.rules.get(Disclosure.SUM, ()), RecordNoise)
    if guard is None:
        return None
    sent = []
    for exchange in plan.exchanges:
        kinds = [kind for kind in exchange.back if kind.disclosure is Disclosure.SUM]
        said = [message_plan(kind, plan.dims) for kind in kinds]
        sent.append((counted_of(said), exchange.times(plan.rounds)))
    return plan_counted(guard, tuple(sent), len(plan.clients))


def _ring(plan: PlanBuilder, layout: SumLayout, margin: int, *, checked: bool) -> Ring:
    chain = plan.policy.chain(Disclosure.SUM)
    try:
        return sum_ring(layout, chain, len(plan.clients), plan.scheme, margin, checked=checked)
    except OutOfRange as error:
        raise PolicyError(
            "The sum of this cohort does not fit into the encryption's plaintext.",
            why=str(error),
            fix="use fewer bits in 'quantise', fewer clients, or another scheme",
        ) from error


PLAN = SumPlanning(Disclosure.SUM)


# From values to a client's summand: rounded, noised, masked, encrypted.


class SumProtection(Protection):
    """Integers on a grid, in a ring."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid; raises NotInPlan if the planned noise is not the policy's."""
        layout = context.summed(item, kinds)[0]
        if any(addressed(kind) != bool(item.reader) for kind in kinds):
            raise NotInPlan(f"{item.id}: another party reads this total than the plan says.")
        if find(context.policy.chain(item.disclosure), "own_noise"):
            check_own(context.plan, context.policy)
        else:
            check_noise(item, layout, context.plan, context.policy)
        check_counted(context.plan, context.policy)
        return layout

    def agreed(self, context: RunContext, item: Item, where: Where) -> str:
        """Return what the masks of a sum rest on; NONE without masks."""
        if context.pairs is None:
            return NONE
        return context.pairs.agreement(slot_of(item, where.round, where.slot))

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Round, add noise and masks, and encrypt, as far as the chain asks for each."""
        context, chain = release.context, release.chain
        ring, clipped = context.summed(release.item, release.kinds)[1], False
        residues = blind_of(context, release.item, release.where, ring)
        if residues is None:
            residues, clipped = _summand(release, ring)
        if find(chain, "mask"):
            residues = _masked(release, residues, ring, header)
        if not encryption(chain):
            return residues.tobytes(), clipped
        if context.scheme is None or context.he_key is None:
            raise LocalProtocolError("The key authority's public key is not here yet.")
        zeros, count = None, ring.size // context.scheme.degree
        if context.zeros is not None and context.scheme.offline:
            zeros = context.zeros.take(context.he_key, count)
        return context.scheme.encrypt(context.he_key, residues.astype("u8"), zeros), clipped


def _summand(release: Release, ring: Ring) -> tuple[RingWords, bool]:
    """Round a client's value and add its noise; return residues, and whether clip changed it."""
    noise, layout = release.item.noise, release.context.summed(release.item, release.kinds)[0]
    # Under noise a privacy claim rests on every draw, so none is seeded (O15).
    key = entropy(32) if noise else release.seeded("rounding")
    limit = float(noise.l2) if noise else None
    own_noise = noise is not None and noise.local
    # Under noise of one's own a refusal would tell of the value; nothing is told but the noise.
    messages = [finite(m) for m in release.messages] if own_noise else release.messages
    integers, clipped = layout.encode(messages, Stream(key), limit=limit)
    clipped = clipped and not own_noise  # ledgers and reports of it are handed out
    if noise:
        law = sampler(SAMPLERS[noise.mechanism], float(noise.sigma))
        integers += law.sample(Stream(entropy(32)), integers.size)
    if own_noise and noise is not None:  # likewise: beyond its head-room noise is cut off
        np.clip(integers, -noise.margin, (1 << layout.bits) - 1 + noise.margin, out=integers)
    add_counted(release.item, layout, integers)
    check = _check(release, integers, ring) if release.item.checked else None
    try:
        residues = ring.residues(integers, check)
    except OutOfRange as error:  # noise beyond its head-room: at most once in 2^40 runs
        raise UnfitMessage("A noised vector does not fit; nothing was sent.") from error
    return residues, clipped


def _check(release: Release, integers: NDArray[np.int64], ring: Ring) -> RingWords:
    """Return the words that let all clients check the total of what moves the model."""
    context, item, where = release.context, release.item, release.where
    place = Place(where.round, where.exchange, where.members, history(context))
    check = sum_check(context, item, ring, place)
    return check.of(integers[: item.checked], context.me.party.name)


def _masked(release: Release, residues: RingWords, ring: Ring, header: Header) -> RingWords:
    """Add this client's masks for the exact cohort to every residue (O4)."""
    context, item, where = release.context, release.item, release.where
    if context.pairs is None:
        raise LocalProtocolError("The pair secrets of this epoch are not here.")
    slot = slot_of(item, where.round, where.slot)
    label = context.mask_label(item, where, header.key, header.pairs)
    plus, minus = context.pairs.keys(slot, where.members, label)
    release.inside[item.id] = hidden = masked_words(residues, ring.modulus, plus, minus)
    check_mask(residues, hidden, ring.modulus)
    return hidden


PROTECT = SumProtection()


VIEW = Summands
