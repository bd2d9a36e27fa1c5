"""Drafts for other people's forms, one file each, found by folder.

An exporter is a module with ``NAME``, ``FILE`` (a file name to suggest) and ``export(report) ->
bytes``. With ``NEEDS_PLAN = True`` it is ``export(report, plan)`` and points at lines of the plan;
with ``NEEDS_ACCOUNT = True`` it is ``export(report, account)`` and says what noise is worth; with
``NEEDS_CATALOG = True`` it is ``export(report, catalog)`` and names controls of the caller's; with
``BROKEN_TOO = True`` it is also made of a run whose evidence is broken. It fills in what the
record of a run shows and leaves empty what only people can know: purposes, legal bases, gravity,
likelihood, opinions. Equal reports, equal bytes. A draft is no statement that anything complies
with anything.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any

from audits.accounting.models import Account
from audits.report.models import Report

_MODULES: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
        if not found.name.startswith("_")
    )
}
EXPORTERS: tuple[str, ...] = tuple(sorted(_MODULES))


def _module(name: str) -> ModuleType:
    if name not in _MODULES:
        raise ValueError(f"no exporter is called {name[:20]!r}; known: {', '.join(EXPORTERS)}")
    return _MODULES[name]


def file_name(name: str) -> str:
    """Return the file name that an exporter suggests; raises ValueError for an unknown one."""
    return str(_module(name).FILE)


def of_broken(name: str) -> bool:
    """Tell whether there is a draft of a run whose evidence is broken too; raises ValueError."""
    return bool(getattr(_module(name), "BROKEN_TOO", False))


def of_account(name: str) -> bool:
    """Tell whether a draft needs the run's account of privacy too; raises ValueError."""
    return bool(getattr(_module(name), "NEEDS_ACCOUNT", False))


def of_catalog(name: str) -> bool:
    """Tell whether a draft needs the caller's catalogue of controls too; raises ValueError."""
    return bool(getattr(_module(name), "NEEDS_CATALOG", False))


def export(
    report: Report,
    name: str,
    plan: str = "",
    account: Account | None = None,
    catalog: Any = None,
) -> bytes:
    """Return a report as a draft in another form.

    Args:
        report: from :func:`audits.report.build.build_report`; its evidence should hold.
        name: of :data:`EXPORTERS`.
        plan: the text of the run's ``plan.json``.
        account: from :func:`audits.accounting.account.account`, where :func:`of_account` says so.
        catalog: of controls, as it was parsed, where :func:`of_catalog` says so.

    Raises:
        ValueError: an unknown name, or one that needs an account or a catalogue and has none.
        PolicyError: the catalogue is none, or no control in it names evidence of ours.
    """
    module = _module(name)
    if of_account(name):
        if account is None:
            raise ValueError(f"{name} needs the run's account of privacy")
        return bytes(module.export(report, account))
    if of_catalog(name):
        if catalog is None:
            raise ValueError(f"{name} needs a catalogue of controls")
        return bytes(module.export(report, catalog))
    if getattr(module, "NEEDS_PLAN", False):
        return bytes(module.export(report, plan))
    return bytes(module.export(report))
