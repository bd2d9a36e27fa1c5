"""Which of a run's client models is meant by a site's name, and what all sites agreed on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from protocols.errors import EvidenceError, OtherVersion
from secure_fgl.errors import UsageError
from secure_fgl.store.client_models import ClientModels, NoSuchModel, Opened

__all__ = ["agreed", "of_site"]

_SHOWN = 9


def agreed(models: ClientModels, checkpoint: bytes) -> str | None:
    """Return what all sites agreed on about their tables (JSON), as one that opens here tells it.

    None for published data, and where none opens.
    """
    for opened in _openable(models, checkpoint):
        return opened.about.get("spec")
    return None


def of_site(models: ClientModels, site: str, checkpoint: bytes) -> Opened:
    """Return a site's model, by the name of its folder, or by that of its client in the plan.

    Args:
        models: of a run.
        site: the name.
        checkpoint: bytes of the shared model's file.

    Raises:
        NoSuchModel: no site is called so, or its model does not open here.
        UsageError: it was changed, or the name is one site's and another one's client.
    """
    named, names = list[Opened](), list[str]()
    for opened in _openable(models, checkpoint):
        called = str(opened.about.get("site", opened.client))
        names.append(called)
        if called == site:
            named.append(opened)
    other = site in models.clients()
    if len(named) == 1 and not (other and named[0].client != site):
        return named[0]
    if named:
        raise UsageError(
            f"{site!r} is one client's site and another client's name in the plan.",
            why=f"the plan calls that site {named[0].client}",
            fix="rename the folders of the sites, and run again",
        )
    if other:
        return models.open(site, checkpoint)
    there = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    raise NoSuchModel(
        f"This run kept no model of {site!r} that opens here.",
        why="there is no such site, or its key is at its own site only",
        fix=f"name one of: {there}" if there else "ask at the site, where its key is",
    )


def _openable(models: ClientModels, checkpoint: bytes) -> Iterator[Opened]:
    for client in models.openable():
        # A spoilt one spoils no other; asked for by its client's name, it is told of.
        with contextlib.suppress(UsageError, OtherVersion, EvidenceError):
            yield models.open(client, checkpoint)
