"""Which of its models a client keeps; it lies in its site's memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from algorithms.tasks import Task
from algorithms.tasks.client_model import ClientModel, predictions
from algorithms.tasks.site import Site

__all__ = ["about_site", "heed", "keep_best", "kept_model", "last_model", "tell"]


def heed(site: Site, best: int) -> None:
    """Keep the model of the best score, if it is the one scored last.

    Args:
        site: a client's.
        best: number of the best score; 0: there is none yet.
    """
    if not best:
        return
    site.memory["best"] = best
    if site.memory.get("scored", (0,))[0] == best:
        site.memory["kept"] = site.memory["scored"]


def keep_best(task: Task, model: ClientModel, site: Site) -> None:
    """Keep a model that nobody scores, unless an earlier one did better on the site's own records.

    These are the site's validation records, and nothing of it leaves. Of equals it is the later,
    so a site without such records keeps the last. One that cannot be scored is no better than any.
    """
    try:
        found = task.scoring.merit(task.score(predictions(task, model, site), site))
    except (ArithmeticError, ValueError):  # what was said of it is not refused over this
        found = None
    merit = -math.inf if found is None else found
    if merit >= site.memory.get("merit", merit):
        site.memory.update(kept=(0, model.kept()), merit=merit)


def kept_model(site: Site) -> tuple[ClientModel, int, int] | None:
    """Return what a client keeps in the end.

    Returns:
        The model; its score's number, 0 where nothing is scored; and the best score's number, as
        the aggregator named it last. The numbers differ where the client was away when the best
        one was taken. None for a client that has no model.
    """
    memory = site.memory
    if (kept := memory.get("kept", memory.get("scored"))) is None:
        return None
    number, model = kept
    return ClientModel(*model), number, memory.get("best", 0)


def last_model(site: Site) -> tuple[ClientModel, int, int] | None:
    """Return the model that was scored last, as `kept_model` returns the one that is kept.

    None where nothing is scored: of unscored models only the best one is remembered.
    """
    if (scored := site.memory.get("scored")) is None:
        return None
    number, model = scored
    return ClientModel(*model), number, site.memory.get("best", 0)


def about_site(site: Site) -> Mapping[str, Any]:
    """Return what belongs to a model of this site, as its answers left it; see `Site`."""
    found: Mapping[str, Any] = site.memory.get("about", {})
    return found


def tell(site: Site) -> None:
    """Remember what belongs to a model of this site, once."""
    if site.about is not None and "about" not in site.memory:
        site.memory["about"] = dict(site.about())
