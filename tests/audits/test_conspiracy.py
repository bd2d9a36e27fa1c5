"""All parties forge together: chains, heads and receipts agree, and one statement is false.

Each test leaves exactly one thing for exactly one check to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from audits.evidence.taken_models import taken_models
from audits.evidence.verify import verify
from crypto.merkle import Checkpoint, Tree
from protocols.evidence.ledger import Entry
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roster import cohort_digest, run_id
from tests.audits.forging import Change, rewrite
from tests.audits.toy_run import AGGREGATOR, CLIENTS, Bus, Toy, run_toy

CLIENT = CLIENTS[1]
COMMON = ("party", "prev", "run", "salt", "seq", "time")  # what every entry holds


@pytest.fixture(scope="module")
def toy() -> Toy:
    return run_toy()


@pytest.fixture
def view(toy: Toy) -> RunView:
    return toy.view(reports=False)


def finds(step: str, text: str, view: RunView) -> None:
    failed = verify(view).failed
    assert failed is not None, "nothing failed"
    assert failed.name == step, failed
    assert text in failed.detail


def where(party: str, **facts: object) -> Callable[[str, Entry], bool]:
    def matches(owner: str, entry: Entry) -> bool:
        return owner == party and all(entry.get(k) == v for k, v in facts.items())

    return matches


def setting(matches: Callable[[str, Entry], bool], **facts: object) -> Change:
    """Change facts of the entries that match."""
    return lambda owner, entry: [{**entry, **facts} if matches(owner, entry) else entry]


def twice(matches: Callable[[str, Entry], bool]) -> Change:
    return lambda owner, entry: [entry, dict(entry)] if matches(owner, entry) else [entry]


def under_plan(toy: Toy, view: RunView, plan: Plan, change: Change | None = None) -> RunView:
    """Return the view with every document and entry moved to another plan."""
    digest = plan.digest
    run = run_id(toy.nonce, toy.roster, digest, toy.policy.digest)

    def move(owner: str, entry: Entry) -> list[Entry]:
        moved = {**entry, "run": run}
        if "plan" in entry:
            moved["plan"] = digest
        return change(owner, moved) if change else [moved]

    moved = rewrite(replace(toy, run=run), view, move)
    return replace(
        moved,
        plan_text=plan.text().encode(),
        roster_text=view.roster_text.replace(toy.run.encode(), run.encode()),
    )


def test_a_rewriting_without_a_lie_passes(toy, view):
    assert verify(rewrite(toy, view, lambda owner, entry: [entry])).ok


def test_an_entry_of_another_run(toy, view):
    matches = where(CLIENT, kind="close")
    finds("chain", "of another run", rewrite(toy, view, setting(matches, run="ab" * 16)))


def test_an_entry_of_another_party(toy, view):
    matches = where(CLIENT, kind="close")
    finds("chain", "another party's", rewrite(toy, view, setting(matches, party="client-1")))


def test_a_ledger_begun_twice(toy, view):
    finds("chain", "begun twice", rewrite(toy, view, twice(where(CLIENT, kind="plan"))))


def test_facts_that_no_entry_has(toy, view):
    matches = where(CLIENT, kind="close")
    for facts in ({"weights": "12"}, {"state": 1}, {"time": True}):
        finds("chain", "entry", rewrite(toy, view, setting(matches, **facts)))
    refusal = {"kind": "refusal", "code": "because", "exchange": 1, "reason": "x", "round": 1}

    def refuse(owner: str, entry: Entry) -> list[Entry]:
        if not matches(owner, entry):
            return [entry]
        return [{**{name: entry[name] for name in COMMON}, **refusal}, entry]

    finds("chain", "outside the closed list", rewrite(toy, view, refuse))


def test_a_head_of_another_log(toy, view):
    tree = Tree()
    for line in view.ledgers[CLIENT].splitlines(keepends=True):
        tree.append(line)
    note = Checkpoint("secure-fgl/other/client-2", tree.size, tree.root())
    signed = note.sign(toy.identities[CLIENT].signing, CLIENT)
    heads = {**view.checkpoints, CLIENT: signed}
    finds("tree", "another run or ledger", replace(view, checkpoints=heads))
    finds("heads", "another run or ledger", replace(view, held_heads={CLIENT: signed}))


def test_a_cut_tail_names_both_sizes(view):
    cut = b"".join(view.ledgers[CLIENT].splitlines(keepends=True)[:-1])
    finds("tree", "covers", replace(view, ledgers={**view.ledgers, CLIENT: cut}))


def test_another_nonce(view):
    changed = view.roster_text.replace(bytes(range(16)).hex().encode(), b"ab" * 16)
    finds("roster", "does not follow", replace(view, roster_text=changed))


def test_an_entry_under_another_policy(toy, view):
    matches = where(CLIENT, kind="release", round=2)
    changed = rewrite(toy, view, setting(matches, policy="ab" * 32))
    finds("plan", "another policy", changed)


def test_a_ledger_begun_in_another_role(toy, view):
    matches = where(CLIENT, kind="plan")
    finds("roster", "another role", rewrite(toy, view, setting(matches, role="aggregator")))


def test_a_plan_for_other_clients(toy, view):
    plan = toy.plan.model_copy(update={"clients": (*CLIENTS, "client-9")})
    finds("roster", "not the clients of the plan", under_plan(toy, view, plan))


def test_o10_a_plan_for_smaller_cohorts_than_the_policy_allows(toy, view):
    plan = toy.plan.model_copy(update={"smallest_cohort": 2})
    finds("plan", "smaller cohorts", under_plan(toy, view, plan))


def test_a_plan_that_promises_another_protection_than_the_policy(toy, view):
    items = tuple(
        item.model_copy(update={"guards": ("seal",)}) if ".up." in item.id else item
        for item in toy.plan.items
    )
    plan = toy.plan.model_copy(update={"items": items})

    def weaken(owner: str, entry: Entry) -> list[Entry]:
        weak = entry["kind"] == "release" and ".up." in entry["item"]
        return [{**entry, "protection": ["seal"]} if weak else entry]

    finds("plan_vs_ledger", "than the policy's", under_plan(toy, view, plan, weaken))


@pytest.mark.parametrize("facts", [{"given": "ab" * 32}, {"bytes": 1}, {"round": 1}])
def test_a_receipt_that_says_something_else(toy, view, facts):
    matches = where(AGGREGATOR, kind="receipt", sender=CLIENT, round=2)
    finds("receipts", "says something else", rewrite(toy, view, setting(matches, **facts)))


def test_a_receipt_written_twice(toy, view):
    matches = where(AGGREGATOR, kind="receipt", sender=CLIENT, round=2)
    finds("receipts", "is there twice", rewrite(toy, view, twice(matches)))


def test_a_receipt_of_somebody_elses_envelope(toy, view):
    taken: list[Entry] = []

    def take(owner: str, entry: Entry) -> list[Entry]:
        if owner == "client-1" and entry["kind"] == "receipt" and entry["round"] == 1:
            taken.append(entry)
        if owner == CLIENT and entry["kind"] == "close":
            return [{**taken[0], "party": CLIENT}, entry]
        return [entry]

    finds("receipts", "for somebody else", rewrite(toy, view, take))


UP = where(CLIENT, kind="release", item="step.up.SUM")


def test_one_envelope_recorded_twice():
    bus = Bus(PrivacyPolicy.preset("he"), 2, CLIENTS, lambda name: 0.25, synthetic=True)
    bus.play(1)
    toy = bus.finish()
    changed = rewrite(toy, toy.view(reports=False), twice(UP))
    finds("plan_vs_ledger", "in one round", changed)


def smaller(toy: Toy, members: tuple[str, ...]) -> Change:
    """Round 2 as if it had been held with fewer clients only."""
    digest = cohort_digest(toy.run, toy.plan.digest, 2, 1, members)
    absent = set(CLIENTS) - set(members)

    def change(owner: str, entry: Entry) -> list[Entry]:
        if entry.get("round") != 2:
            return [entry]
        if entry["kind"] in ("heads", "taken"):
            return [] if owner in absent else [entry]
        if {owner, entry.get("sender"), entry.get("recipient")} & absent:
            return []
        moved = {**entry, "cohort": digest}
        return [{**moved, "members": len(members)} if entry["kind"] == "open" else moved]

    return change


def test_a_client_that_took_a_model_of_no_ask_and_one_that_took_another(toy, view):
    took = where(CLIENT, kind="taken", round=2)
    finds(
        "result", "took a model that nobody handed", rewrite(toy, view, setting(took, exchange=9))
    )
    other = setting(took, digest="ab" * 32)
    finds("result", "clients of one Ask took different models", rewrite(toy, view, other))
    case = Case(rewrite(toy, view, other))
    assert taken_models(case) and "ab" * 32 not in taken_models(case)  # one client may lie


def test_o10_a_cohort_below_the_minimum(toy, view):
    finds("opened", "has 3 clients", rewrite(toy, view, smaller(toy, CLIENTS[:3])))


def test_o5_somebody_else_than_the_authority_opened(toy, view):
    facts = {"kind": "open", "cohort": "ab" * 32, "exchange": 1, "members": 4, "round": 1}
    facts["survivors"] = 4

    def open_too(owner: str, entry: Entry) -> list[Entry]:
        if not (owner == AGGREGATOR and entry["kind"] == "close"):
            return [entry]
        return [{**{name: entry[name] for name in COMMON}, **facts}, entry]

    finds("opened", "the plan lets key_authority open", rewrite(toy, view, open_too))


def test_o4_a_release_outside_its_cohort(toy, view):
    def stray(owner: str, entry: Entry) -> list[Entry]:
        mine = entry.get("sender") == CLIENT and entry.get("round") == 1
        return [{**entry, "cohort": "ab" * 32} if mine else entry]

    finds("opened", "", rewrite(toy, view, stray))


def test_o5_a_total_that_was_opened_and_never_returned(toy, view):
    def lose(owner: str, entry: Entry) -> list[Entry]:
        lost = entry.get("item") == "step.opened" and entry["round"] == 1
        return [] if lost else [entry]

    finds("opened", "never returned", rewrite(toy, view, lose))


# --- second spellings of a document ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("policy_text", b'"bits": 16', b'"bits": "16"'),
        ("policy_text", b'"bits": 16', b'"bits": 16.0'),
        ("plan_text", b'"rounds": 2', b'"rounds": "2"'),
        ("plan_text", b"\n}\n", b"\n}\n\n"),
        ("plan_text", b'"rounds": 2', b'"rounds": 2, "rounds": 2'),
        ("roster_text", b'"memory"', b'"pigeon"'),
        ("roster_text", b'"name": "client-1"', b'"name": "client-5"'),
        ("roster_text", b'"name": "client-1"', b'"name": "client-2"'),
        ("roster_text", b'"role": "aggregator"', b'"role": "client"'),
        ("roster_text", b'"role": "client"', b'"role": "observer"'),
        ("roster_text", b'"nonce": "0001', b'"nonce": "0g01'),
        ("roster_text", b'"nonce": "000102', b'"nonce": "00 01 02'),
    ],
)
def test_a_second_spelling_of_a_paper_is_refused(view, name, old, new):
    before = getattr(view, name)
    assert old in before
    finds("files", "", replace(view, **{name: before.replace(old, new, 1)}))
