"""Checks of what was agreed on: folder, keys, versions, charter, plan and spec."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from protocols.plan.drift import drift
from secure_fgl.charters.identity_file import IDENTITY_FILE, is_locked
from secure_fgl.charters.versions import check_versions, installed
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.sites.checks.lines import NotChecked, Subject, named
from secure_fgl.store.sides.places import RUNS, places_of
from secure_fgl.store.sides.site_log import NAME as LOG

__all__ = ["charter", "folder", "keys", "plan", "spec", "versions"]

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
