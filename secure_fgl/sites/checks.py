"""What a site checks before a run begins: ``secure-fgl site check``."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from audits.evidence.steps import NotChecked, Status
from crypto.errors import CryptoError
from protocols.errors import SecureFglError
from protocols.plan.plan import Item, at_most, drift
from protocols.policy.budget import budget_key
from protocols.sessions.heads import planned_spending
from protocols.wire.roles import Role
from protocols.wire.roster import Identity
from secure_fgl.charters.broker import CARRIER, KEY_FILE
from secure_fgl.charters.charter import Charter, check_versions, installed
from secure_fgl.charters.identity_file import IDENTITY_FILE, is_locked, load_identity
from secure_fgl.charters.joining import kept_charter
from secure_fgl.charters.party import PartyKit
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.config import OWN, own_root
from secure_fgl.data.loading import TOO_FEW, trains_on_few
from secure_fgl.data.own import Tally, load_spec, own_site
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.isolation.kernel import check_kernel
from secure_fgl.isolation.separation import separable
from secure_fgl.reasons import explain
from secure_fgl.run.naming import learning_seed
from secure_fgl.store.budgets import BudgetStore
from secure_fgl.store.sides.hand_overs import at_rest as at_rest_of
from secure_fgl.store.sides.party_side import NAME as LOG
from secure_fgl.store.sides.party_side import RUNS, place_of, places_of
from secure_fgl.transports.broker.carrier import Connection
from secure_fgl.transports.broker.check import check_broker
from secure_fgl.transports.broker.config import connection

__all__ = [
    "OFFLINE",
    "Check",
    "Line",
    "NotChecked",
    "S",
    "Status",
    "Subject",
    "asked_broker",
    "at_rest",
    "budget",
    "carrier",
    "charter",
    "check_site",
    "clock",
    "data",
    "disk",
    "failed",
    "folder",
    "kernel",
    "keys",
    "look",
    "named",
    "plan",
    "separation",
    "spec",
    "utc",
    "versions",
]

# --- What a check looks at, and the line that it comes to ---


def named(uid: int) -> str:
    """Return what messages call a user."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"number {uid}"


def utc() -> datetime:
    """Return the time of this machine (UTC)."""
    return datetime.now(UTC)


@dataclass
class Subject:
    """One party at its site; each part is read when a check first asks for it, and once.

    Attributes:
        party: its folder.
        run: the name of the run; None: the one run that the party joined.
        now: this machine's time.
    """

    party: Path
    run: str | None
    now: datetime
    _agreed: PartyKit | None = None

    @cached_property
    def me(self) -> Identity:
        """The party's keys; raises UsageError."""
        return load_identity(self.party)

    @cached_property
    def place(self) -> Path:
        """The folder of the run at this party; raises UsageError where it joined none."""
        return place_of(self.party, self.run)

    @cached_property
    def charter(self) -> Charter:
        """The charter as it lies there; raises UsageError, or EvidenceError for what is none."""
        found = kept_charter(self.place)
        if found is None:
            raise UsageError(
                f"{self.place} holds no charter.",
                why="it was taken away, or the folder is none of ours",
                fix="secure-fgl site join PARTY charter.json, with one that all signed",
            )
        return found

    def agree(self) -> PartyKit:
        """Hold keys and charter to each other; raises as `PartyKit.agreed` does."""
        self._agreed = PartyKit.agreed(self.place, self.me, self.charter)
        return self._agreed

    @property
    def agreed(self) -> PartyKit:
        """What the check of the charter found; raises NotChecked where it found nothing."""
        if self._agreed is None:
            raise NotChecked("the charter does not hold")
        return self._agreed


Check = Callable[[Subject], str]
"""Returns a sentence; raises NotChecked, or an error that says why not and what to do."""


@dataclass(frozen=True)
class Line:
    """The outcome of one check.

    Attributes:
        name: of the check.
        status: OK, FAIL or NOT CHECKED.
        said: one sentence.
        todo: what to do, where something is to be done.
        code: exit code of what failed; 0 if nothing did.
    """

    name: str
    status: Status
    said: str
    todo: str = ""
    code: int = 0


S = TypeVar("S")


def look(name: str, check: Callable[[S], str], subject: S) -> Line:
    """Run one check; whatever it raises becomes its line."""
    try:
        return Line(name, Status.OK, check(subject))
    except NotChecked as missing:
        return Line(name, Status.NOT_CHECKED, str(missing))
    except Exception as error:
        return failed(name, error)


def failed(name: str, error: Exception) -> Line:
    """Return the line of a check that raised; of an error that is not ours its text stays out."""
    said, todo = _told(error)
    return Line(name, Status.FAIL, said, todo, exit_code(error))


def _told(error: Exception) -> tuple[str, str]:
    if isinstance(error, SecureFglError):
        why = f" {error.why[:1].upper()}{error.why[1:].rstrip('.')}." if error.why else ""
        return f"{error.what}{why}", error.fix
    if isinstance(error, CryptoError):
        what, _, todo = error.diagnostics()
        return what, todo
    return " ".join(explain(error, again="")), ""  # its text may hold data


# --- Checks of what was agreed on: folder, keys, versions, charter, plan and spec ---

_SECRET = (IDENTITY_FILE, "tags.key", "keys", "carrier", LOG, f"{LOG}.1", RUNS, "run")
"""What nobody but the party's own user may read."""


def folder(subject: Subject) -> str:
    """Modes and owner of the party's folder, of what lies in it, and in those of its runs."""
    party = subject.party
    try:
        entries = sorted(party.iterdir())
        of_runs = [one for place in places_of(party).values() for one in (place, *place.iterdir())]
    except OSError as error:
        raise UsageError(f"{party} cannot be listed ({error.strerror}).") from error
    for path in (party, *entries, *of_runs):
        found = path.lstat()
        if found.st_uid != os.geteuid():
            raise UsageError(
                f"{path} belongs to another user, {named(found.st_uid)}.",
                why="the party's process could not use it, or somebody else can change it",
                fix="run site check as the party's user"
                if path == party
                else f"chown {os.geteuid()} {path}",
            )
        _closed(path, found.st_mode)
    owner, count = named(os.geteuid()), len(entries) + len(of_runs)
    return f"{count} entries, all of the user {owner}; keys are closed to others"


def _closed(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        if path.name in _SECRET:
            raise UsageError(f"{path} is a link.", fix="put the file itself there")
        return
    open_to = mode & (0o077 if path.name in _SECRET else 0o022)
    if open_to:
        word = "read or changed" if path.name in _SECRET else "changed"
        raise UsageError(
            f"{path} can be {word} by other users of this machine.",
            fix=f"chmod {'go=' if path.name in _SECRET else 'go-w'} {path}",
        )


def keys(subject: Subject) -> str:
    """The party's keys open, under their passphrase where they have one."""
    party = subject.me.party
    how = "under a passphrase" if is_locked(subject.party) else "in clear, closed to other users"
    return f"{party.name}, {party.role}; {how}"


def versions(subject: Subject) -> str:
    """Programs here are of the versions that the charter names."""
    here = installed()
    check_versions(subject.charter.versions)
    absent = [name for name, version in here.items() if not version]
    if absent:
        raise NotChecked(f"{', '.join(absent)} is not installed here; run this where it is")
    return ", ".join(f"{name} {version}" for name, version in here.items())


def charter(subject: Subject) -> str:
    """All signed the charter, it names this party as it is, and this party did not refuse it."""
    found = subject.agree().charter
    whose = len({*found.organisations.values()}) or "unnamed"
    signed = f"signed by all {len(found.signatures)} parties, {whose} organisations"
    return f"run {found.run}, {signed}"


def plan(subject: Subject) -> str:
    """This installation, with this party's plug-ins, makes the very plan of the charter."""
    kit = subject.agreed
    agreed = kit.charter
    federation = Federation(
        config=kit.config(), policy=agreed.policy, plugins=kit.plugin_files(), spec=agreed.spec
    )
    federation.plugins.hold_to(agreed.plan)
    if differences := drift(agreed.plan, federation.plan()):
        raise PlanDrift(differences)
    return f"made anew, {agreed.plan.digest[:16]}, as in the charter"


def spec(subject: Subject) -> str:
    """This site's ``spec.yaml`` is the charter's."""
    kit = subject.agreed
    if kit.charter.spec is None:
        return "the charter has none: no tables of the sites' own"
    if not kit.check_spec():
        raise NotChecked(f"no {SPEC_FILE} is here, and {kit.me.party.role} needs none")
    return f"{kit.charter.spec.digest[:16]}, as in the charter"


# --- Checks of what a site holds: data, budget, disk, clock, kernel, and that nobody is at work
# ---

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


# --- Checks of the broker: the carrier's key, what it needs to know, and the server itself ---

_MARKS = {True: Status.OK, False: Status.FAIL, None: Status.NOT_CHECKED}


def carrier(subject: Subject) -> str:
    """The carrier's key is closed, and what the carrier knows is what the charter says."""
    kit = subject.agreed
    folder = subject.party / CARRIER
    if not (folder / KEY_FILE).exists():
        raise NotChecked(f"{folder / KEY_FILE} is not here: the carrier has a user of its own")
    if (folder / KEY_FILE).stat().st_mode & 0o077:
        path = folder / KEY_FILE
        raise UsageError(f"{path} can be read by other users.", fix=f"chmod 600 {path}")
    wanted = connection(kit.charter, kit.name)
    try:
        kept = Connection.load(folder, kit.charter.run)
        if replace(kept, urls=wanted.urls, root=wanted.root).text() != wanted.text():
            raise ValueError
    except (OSError, TypeError, ValueError):
        raise UsageError(
            f"{folder / kit.charter.run}.json is missing, or not what the charter says.",
            fix="secure-fgl site join PARTY CHARTER once more",
        ) from None
    own = "" if kept.text() == wanted.text() else ", a server of this site's own (broker leaf),"
    return f"connects to {', '.join(kept.urls)}{own} with a key of its own"


def separation(subject: Subject) -> str:
    """This machine can keep the network from the party's process and files from the carrier."""
    return separable()


def asked_broker(subject: Subject) -> Iterator[Line]:
    """Yield a line for each thing that was tried at the server."""
    try:
        kit = subject.agreed
        to = connection(kit.charter, kit.name)
        for found in check_broker(subject.party / CARRIER, to, kit.charter):
            code = 0 if found.ok is not False else 2
            fix = "see broker config, and whoever runs the server" if code else ""
            yield Line(f"broker: {found.name}", _MARKS[found.ok], found.sentence, fix, code)
    except NotChecked as missing:
        yield Line("broker", Status.NOT_CHECKED, str(missing))
    except Exception as error:
        yield failed("broker", error)


# --- All checks of a site, in their order. Only the last ones send anything, and only if asked for
# ---

OFFLINE: dict[str, Check] = {
    "folder": folder,
    "keys": keys,
    "versions": versions,
    "charter": charter,
    "plan": plan,
    "spec": spec,
    "data": data,
    "budget": budget,
    "disk": disk,
    "clock": clock,
    "kernel": kernel,
    "process": at_rest,
    "carrier": carrier,
    "separation": separation,
}


def check_site(
    party: str | Path,
    *,
    run: str | None = None,
    broker: bool = False,
    now: Callable[[], datetime] = utc,
) -> Iterator[Line]:
    """Look at a party's site, and yield a line for each check; what could fail later fails here.

    A passphrase may be asked for.

    Args:
        party: the party's folder.
        run: the name of the run; None: the one run that the party joined.
        broker: also connect to the broker with the carrier's key, and try what must be refused.
        now: tells the time (UTC).
    """
    subject = Subject(Path(party), run, now())
    for name, check in OFFLINE.items():
        yield look(name, check, subject)
    if broker:
        yield from asked_broker(subject)
