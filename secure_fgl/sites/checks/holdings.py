"""Checks of what a site holds: data, budget, disk, clock, kernel, and that nobody is at work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from protocols.plan.plan import Item, at_most
from protocols.policy.budget import budget_key
from protocols.sessions.services.spending import planned_spending
from protocols.wire.roles import Role
from secure_fgl.charters.party import PartyKit
from secure_fgl.config import OWN, own_root
from secure_fgl.data.floor import TOO_FEW, trains_on_few
from secure_fgl.data.own import Tally, load_spec, own_site
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import check_kernel
from secure_fgl.run.naming import learning_seed
from secure_fgl.sites.checks.lines import NotChecked, Subject
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.sides.hand_overs import at_rest as at_rest_of
from secure_fgl.store.sides.places import places_of

__all__ = ["at_rest", "budget", "clock", "data", "disk", "kernel"]

_ENTRY = 2048  # bytes of a ledger's entry with its line; ours have 400 to 1,500
_SPARE = 256 << 20  # bytes that are to be left when the run is over
_BACK = timedelta(minutes=2)  # that a clock may be set back by who keeps it right


def data(subject: Subject) -> str:
    """This client's own tables can be used. What was put right is counted, for its own eyes."""
    kit = _client(subject)
    config, name = kit.config(), kit.name
    if config.data.name != OWN:
        raise NotChecked(f"{config.data.name} is a published set; the session reads it")
    root, tally = own_root(config.data.root), Tally()
    part = own_site(root, name, load_spec(root), learning_seed(config.seed, "split"), tally)
    train, val, test = (int(mask.sum()) for mask in (part.train, part.val, part.test))
    found = f"{root / name}: {train} records to train on, {val} to validate, {test} to test"
    least = kit.charter.plan.minimum_records
    few = [TOO_FEW.format(least)] if trains_on_few(part, least) else []
    return "; ".join([found, *few, *tally.sentences()])


def budget(subject: Subject) -> str:
    """What is left of this site's privacy budgets covers the run."""
    kit = _client(subject)
    charter = kit.charter
    units = [*planned_spending(charter.plan)]
    if not units:
        return "the run spends none"
    store, told = BudgetStore(kit.config().budget.store), []
    if (kit.run_folder / "roster.json").exists():
        raise NotChecked("the run has begun, and took what it spends then")
    for unit, curve in units:
        cap = charter.policy.budgets[unit]
        dataset = budget_key(charter.plan.data.name, unit)
        now, after = store.foresee(kit.name, dataset, curve, cap)
        spent = f"epsilon {now.epsilon} of {cap.epsilon:g} spent by {now.entries} runs"
        told.append(f"{unit}: {spent}, {after} after this one, at delta {cap.delta:g}")
    return "; ".join(told)


def disk(subject: Subject) -> str:
    """There is room for this party's ledger, and for what it captures."""
    kit = subject.agreed
    needed, free = _bytes_needed(kit), shutil.disk_usage(subject.party).free
    if free < needed + _SPARE:
        raise UsageError(
            f"{_mega(free)} are free at {subject.party}, and the run takes up to {_mega(needed)}.",
            why=f"{_mega(_SPARE)} are to be left besides; what cannot be written is not sent",
            fix="make room, or move the party's folder to another disk",
        )
    return f"{_mega(free)} free, the run takes up to {_mega(needed)} for ledger and captures"


def clock(subject: Subject) -> str:
    """This machine's clock is not before anything that was written here."""
    now, files = subject.now, _dated(subject.party)
    written = {path: datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in files}
    for path, when in written.items():
        if now < when - _BACK:
            raise UsageError(
                f"The clock says {now:%Y-%m-%d %H:%M} UTC, and {path} was written at "
                f"{when:%Y-%m-%d %H:%M} UTC.",
                why="the clock was set back, or was wrong then",
                fix="set it right: ledgers, budgets' days and certificates go by it",
            )
    return f"{now:%Y-%m-%d %H:%M} UTC, before nothing written here; compare it with another clock"


def kernel(subject: Subject) -> str:
    """This machine can isolate what an algorithm computes on the data."""
    _client(subject)
    return f"Landlock {check_kernel()} and seccomp"


def at_rest(subject: Subject) -> str:
    """No other process of this party is at work on this run."""
    why = "two processes of one party on one run would break what each of them promised"
    with at_rest_of(subject.agreed.folder, why, "end the other one first"):
        return "no process of this party is at work on this run"


def _client(subject: Subject) -> PartyKit:
    kit = subject.agreed
    if kit.me.party.role is not Role.CLIENT:
        raise NotChecked(f"of clients alone; this is {kit.me.party.role}")
    return kit


def _bytes_needed(kit: PartyKit) -> int:
    """Return an upper bound of ledger and captured pieces, from the plan's counts and sizes."""
    charter, role = kit.charter, kit.me.party.role
    mine = [i for i in charter.plan.items if role in (i.sender, i.recipient)]
    of = 1 if role is Role.CLIENT else len(charter.plan.clients)
    needed = at_most(mine, lambda item: item.times) * of * _ENTRY
    capture = charter.policy.capture
    if capture is not None:
        share = 1.0 if capture.rounds == "all" else min(1.0, 3 / charter.plan.rounds)
        needed += int(at_most(_carried(mine), lambda i: i.bytes * i.times) * of * share)
    return needed


def _carried(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if item.per_round]


def _dated(party: Path) -> list[Path]:
    """Return the files whose time of writing tells how late it is at least."""
    found = [party / name for name in ("identity.json", "site.log")]
    for place in places_of(party).values():
        found += [place / "charter.json", *sorted((place / "run" / "ledger").glob("*.jsonl"))]
    return [path for path in found if os.path.isfile(path)]


def _mega(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
