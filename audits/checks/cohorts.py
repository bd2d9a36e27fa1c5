"""Whether each cohort is one that lots drew, signed cuts left, or a topology names (O5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from audits.evidence.asked import Asked
from audits.evidence.cluster_sizes import cluster_sizes
from audits.evidence.exchanges import drawn_by
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.messages import NeighbourBoxes
from protocols.errors import CohortChanged, PolicyError
from protocols.evidence.ledger import Entry
from protocols.plan.cohorts import TopologyPlan, clear_seed, turn
from protocols.plan.steps import Service, Step
from protocols.policy.policy import divided
from protocols.wire.roles import Role

# --- Clusters: made by cuts that were signed, the same for all of a cohort, and never few apart
# (O5) ---
#
# A client writes down every other cluster that it lets itself be asked for, and the key authority
# every cut that it signs. Part of the step ``opened``.

Groups = tuple[int, ...]
_MOST = 8  # changes of clusters that are told, the last ones


def clusters(case: Case) -> str:
    """Hold the clusters of a run to the plan; return a clause of what there was, else nothing."""
    told = {kind: [*case.ledger_index.of_kind(kind)] for kind in ("cluster", "cut")}
    splits, everybody = case.plan.splits, (1 << len(case.plan.clients)) - 1
    if splits is None:
        for _, entry in (*told["cluster"], *told["cut"]):
            _fail(entry, "is of a cluster, and the plan never splits clients")
        return ""
    groups: Groups = (everybody,)
    known: dict[int, int] = {everybody: 0}  # clusters that signed cuts make, and since when
    for party, entry in told["cut"]:
        groups = _cut(case, party, entry, groups, known)
    inside: dict[str, list[tuple[int, int]]] = {
        name: [(0, everybody)] for name in case.plan.clients
    }
    for party, entry in told["cluster"]:
        groups = _cluster(case, party, entry, groups, known, inside)
    for ask in case.exchanges.all.values():
        _alike(case, ask, inside)
    said = f"; clusters of {_sizes(case)}"
    return said + (", by signed cuts" if splits.signed else ", by the aggregator's word")


def _sizes(case: Case) -> str:
    """Return how many clients the clusters hold, and from which round on."""
    found, last = cluster_sizes(case), case.plan.rounds
    told = [plural(len(case.plan.clients), "client")]
    for row in found.rows[1:][-_MOST:] if found is not None else ():
        since = f"from round {row.round} on" if row.round <= last else "after the last round"
        told.append(f"{since} {', '.join(map(str, row.sizes))}")
    return "; ".join(told)


def _cut(case: Case, party: str, entry: Entry, groups: Groups, known: dict[int, int]) -> Groups:
    """Check a cut that was signed: of a known cluster, by cosines of all of it that were opened."""
    cluster, side, number = _set(entry, "cluster"), _set(entry, "side"), entry["exchange"]
    if case.roster.party(party).role is not Role.KEY_AUTHORITY:
        _fail(entry, f"was cut by {party}, which may not")
    if known.get(cluster, number) >= number or not side or side & ~cluster or side == cluster:
        _fail(entry, "is no cut of a cluster")
    ask = case.exchanges.all.get(number)
    opened = ask.of(Disclosure.SIMILARITY, Step.OPENED) if ask is not None else []
    if ask is None or not _there(entry, opened):
        _fail(entry, "rests on cosines that were not opened")
    if _bits(case, ask.members) != cluster or ask.vanished:
        _fail(entry, "rests on cosines of others than the cluster's clients")
    for one in (side, cluster & ~side):
        groups = _apart(case, entry, groups, one)
        known.setdefault(one, number)
    return groups


def _cluster(
    case: Case,
    party: str,
    entry: Entry,
    groups: Groups,
    known: dict[int, int],
    inside: dict[str, list[tuple[int, int]]],
) -> Groups:
    """Check a cluster that a client let itself be asked for: a part of its old one, signed."""
    cluster, number, splits = _set(entry, "cluster"), entry["exchange"], case.plan.splits
    if party not in inside:
        _fail(entry, f"is of {party}, which is no client")
    before = inside[party][-1][1]
    if cluster & ~before or not cluster >> case.roster.place(party) & 1:
        _fail(entry, f"is no part of what {party} was in before")
    if splits is not None and splits.signed and known.get(cluster, number) >= number:
        _fail(entry, f"comes of no cut that was signed before {party} was asked")
    ask = case.exchanges.all.get(number)
    if not _there(entry, [s for s in ask.downs if s.recipient == party] if ask is not None else []):
        _fail(entry, f"is of no Ask that went to {party}")
    inside[party].append((number, cluster))
    return _apart(case, entry, groups, cluster)


def _apart(case: Case, entry: Entry, groups: Groups, cluster: int) -> Groups:
    splits = case.plan.splits
    leaves = splits is not None and splits.guard == "leave"  # the plan says so
    try:
        return divided(groups, cluster, "floor", 1 if leaves else case.plan.smallest_cohort)
    except CohortChanged:
        _fail(entry, f"sets fewer than {case.plan.smallest_cohort} clients apart")


def _alike(case: Case, ask: Asked, inside: dict[str, list[tuple[int, int]]]) -> None:
    """See that all who answered an Ask were told one cluster, which holds all who were asked."""
    if not (ask.summed or ask.awaited) or not ask.arrived:
        return
    last = {[c for since, c in inside[name] if since <= ask.number][-1] for name in ask.arrived}
    members = _bits(case, ask.members)
    if len(last) != 1 or members & ~last.pop():
        fail("opened", f"exchange {ask.number} is of no cluster that its members were told (O5)")


def _there(entry: Entry, sents: Sequence[Sent]) -> bool:
    """Tell whether an entry names round and cohort as what was sent then does."""
    return any(
        sent.round == entry["round"] and sent.facts["cohort"] == entry["cohort"] for sent in sents
    )


def _bits(case: Case, names: Iterable[str]) -> int:
    return int.from_bytes(case.roster.mask(sorted(names)), "little")


def _set(entry: Entry, name: str) -> int:
    try:
        return int.from_bytes(bytes.fromhex(entry[name]), "little")
    except ValueError:
        _fail(entry, f"says a {name} that is no set of clients")


def _fail(entry: Entry, what: str) -> NoReturn:
    fail("opened", f"entry {entry['seq']} of {entry['party']} {what} (O5)")


# --- Cohorts drawn by lot: all parties recorded one draw, and asked were its cohorts alone ---


def drawn(case: Case, exchanges: Sequence[Asked]) -> None:
    """Check who was asked against what was drawn; raises EvidenceError at step ``opened``.

    Every client computed the cohorts itself and recorded what from; all that took part recorded the
    same, and whoever answered an Ask took part. No cohort of an Ask reaches into two of them, and
    rounds took them in turn.
    """
    entries = list(case.ledger_index.of_kind("drawn"))
    if (planned := case.plan.drawn) is None:
        if entries:
            fail("opened", f"{entries[0][0]} recorded a draw that the plan does not have")
        return
    found: dict[str, tuple[object, ...]] = {}
    for party, entry in entries:
        if party in found or case.roster.party(party).role not in (Role.CLIENT, Role.AGGREGATOR):
            fail("opened", f"{party} recorded cohorts twice, or draws none")
        cohorts = drawn_by(entry, case.plan, case.roster)
        if entry["cohorts"] != planned.cohorts or not cohorts or not _planned(case, entry):
            fail("opened", f"what {party} recorded of the draw is of another plan")
        try:
            planned.left(sum(map(len, cohorts)), case.policy)
        except PolicyError as error:
            fail("opened", f"what {party} recorded of the draw: {error.what}")
        found[party] = (entry["members"], entry["seed"])
    if len(set(found.values())) > 1:
        fail("opened", "parties recorded different draws: the aggregator told them different ones")
    for ask in exchanges:
        answers = {s.party for s in ask.sents if s.step is Step.UP}
        if not answers:
            continue
        if late := sorted({case.exchanges.aggregator, *answers} - found.keys()):
            fail("opened", f"{late[0]} took part in exchange {ask.number} and recorded no draw")
        cohort = case.exchanges.cohort_of(min(ask.members))
        if not ask.members <= set(cohort):
            fail("opened", f"exchange {ask.number} asked clients of another cohort than was drawn")
        if _in_turn(case, ask) and turn(case.exchanges.cohorts, ask.round) != cohort:
            fail("opened", f"exchange {ask.number} asked a cohort in another's round")


def _planned(case: Case, entry: Entry) -> bool:
    """Tell whether a seed may be this run's: where sums leave in clear it is the plan's own."""
    if case.plan.drawn is None or case.plan.drawn.by_lot:
        return True
    return bool(entry["seed"] == clear_seed(case.plan.seed, case.roster.clients).hex())


def _in_turn(case: Case, ask: Asked) -> bool:
    """Tell whether an Ask is of rounds alone: those outside ask all cohorts, one by one."""
    items = [i for i in case.plan.items if i.exchange == ask.name and i.step is Step.UP]
    return all(i.per_round and i.times <= i.per_round * case.plan.rounds for i in items)


# --- Sums over neighbours: the plan's topology holds, and everybody gave all of them one model
# (O5) ---
#
# A sender states the digest of its vector before it leaves, each receiver the digests that it got.
# Their heads are cosigned with every Ask, so neither can be written anew later. Part of the step
# ``opened``.

Digests = dict[tuple[int, str], str]


def neighbours(case: Case) -> str:
    """Check topology and digests; return a clause of what there was, else nothing."""
    offered = list(case.ledger_index.of_kind("offered"))
    told = list(case.ledger_index.of_kind("neighbourhood"))
    topology = case.plan.topology
    if topology is None:
        for party, entry in (*offered, *told):
            _fail_neighbours(party, entry, "is of neighbours, and the plan has none")
        if case.plan.all_of(Disclosure.NEIGHBOUR_SUM):
            fail("opened", "neighbours read sums, and the plan says of nobody who they are")
        return ""
    _floor(case, topology)
    given = _offered(case, offered)
    once: set[tuple[int, str]] = set()
    missed = 0
    for party, entry in told:
        place = entry["exchange"], party
        if place in once or place not in given:
            _fail_neighbours(
                party, entry, "mixes twice in a round, or without having given anything"
            )
        once.add(place)
        missed += bool(entry["absent"])
        _received(party, entry, topology, given)
        _away(case, party, entry, topology)
    _stated(case, given)
    _handed(case, once)
    sums = f"{plural(len(told) - missed, 'sum')} over neighbours, of one model of each"
    away = f"; {missed} not opened, as a neighbour was away" if missed else ""
    unsafe = "; the topology is UNSAFE" if topology.floor == "unsafe" else ""
    return f"; {sums}{away}{unsafe}"


def _floor(case: Case, topology: TopologyPlan) -> None:
    """Make the plan-time check again."""
    try:
        again = topology.again(case.policy)
    except (PolicyError, ValueError) as error:
        fail(
            "opened",
            f"the topology is not what the policy lets run: {getattr(error, 'what', error)}",
        )
    if again != topology or set(topology.shares) != set(case.plan.clients):
        fail("opened", "the topology is not the one that its edges and the policy give")


def _offered(case: Case, entries: list[tuple[str, Entry]]) -> Digests:
    found: Digests = {}
    for party, entry in entries:
        if case.roster.party(party).role is not Role.CLIENT:
            _fail_neighbours(party, entry, "is of no client")
        place = entry["exchange"], party
        if place in found:
            _fail_neighbours(party, entry, "offers a second model in one round")
        found[place] = entry["commitment"]
    return found


def _received(party: str, entry: Entry, topology: TopologyPlan, given: Digests) -> None:
    senders, absent, digests = topology.neighbours(party), entry["absent"], entry["commitments"]
    if not set(absent) <= set(senders) or len(digests) != (0 if absent else len(senders)):
        _fail_neighbours(party, entry, "opened other than a whole neighbourhood")
    for sender, digest in zip(senders, digests, strict=False):
        if given.get((entry["exchange"], sender)) != digest:
            _fail_neighbours(party, entry, f"got another model of {sender} than {sender} states")


def _away(case: Case, party: str, entry: Entry, topology: TopologyPlan) -> None:
    """Check that who is said to be away was, or could not send for another one who was.

    Else somebody keeps this client from mixing: its neighbours then read how it trains alone.
    """
    ask = case.exchanges.all.get(entry["exchange"])
    if ask is None or ask.round != entry["round"]:
        _fail_neighbours(party, entry, "is of no such exchange")
    there, around = set(ask.arrived), {*topology.neighbours(party)}
    if case.plan.all_of(Service.PAIRS, Step.CALL):
        there &= case.exchanges.ready(ask.round).keys()
    if entry["absent"] and around <= there:
        _fail_neighbours(
            party, entry, f"misses {entry['absent'][0]}, and its whole neighbourhood had sent"
        )


def _handed(case: Case, once: set[tuple[int, str]]) -> None:
    """Check that whoever was handed boxes says what was in them."""
    handing = {
        item.exchange
        for item in case.plan.all_of(Service.ASK, Step.DOWN)
        if any(message.name == NeighbourBoxes.__name__ for message in item.messages)
    }
    told = {(case.exchanges.all[exchange].round, party) for exchange, party in once}
    for sent in case.ledger_index.releases():
        answered = sent.step in (Step.ACK, Step.UP) and sent.ask in handing
        if answered and (sent.round, sent.party) not in told:
            fail(
                "opened", f"{sent.party} got boxes in round {sent.round}, and says nothing of them"
            )


def _stated(case: Case, given: Digests) -> None:
    for sent in case.ledger_index.releases():
        if (sent.part, sent.step) != (Disclosure.NEIGHBOUR_SUM, Step.UP):
            continue
        if (sent.exchange, sent.party) not in given:
            fail("opened", f"{sent.party} gave a model in exchange {sent.exchange} unstated")


def _fail_neighbours(party: str, entry: Entry, what: str) -> NoReturn:
    fail("opened", f"entry {entry['seq']} of {party} {what}")
