"""Data sets by name."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from algorithms.tasks import DataSpec
from protocols.plan.plan import Plan, plugin_entry
from secure_fgl.data import sources
from secure_fgl.data._folder import members, unknown
from secure_fgl.data.records import Dataset, GraphSet, Ratings
from secure_fgl.data.sources._shared.files import Shape, Source
from secure_fgl.data.sources._shared.pyg_files import nothing_unpickled
from secure_fgl.errors import UsageError, next_step, usage

__all__ = [
    "GENERATED",
    "ROOT_VARIABLE",
    "SMALL_BOUND",
    "as_usage",
    "bound_near",
    "dataset_names",
    "is_generated",
    "is_taken",
    "load_dataset",
    "power_of_two",
    "published_shape",
    "read_dataset",
    "shape_of",
    "spec_of",
]

_AT_LEAST = 0.9  # of an even share: what the site with the most records has at least
SMALL_BOUND = 64
"""Of training records: up to it a bound is never too loose, as few records vary much."""
GENERATED = frozenset({"synthetic_banks", "synthetic_lenders", "synthetic_ratings"})
"""Data sets that this program draws itself."""
ROOT_VARIABLE = "SECURE_FGL_DATA"
"""Environment variable that names the data folder when no root is given."""


def _sources() -> dict[str, Source]:
    found = (cast(Source, module) for module in members(sources).values())  # ours last: they win
    return {name: source for source in found for name in source.NAMES}


def _source(name: str) -> Source:
    by_name = _sources()
    if name in by_name:
        return by_name[name]
    for source in by_name.values():
        if name.startswith(getattr(source, "PREFIX", name + "?")):
            return source
    raise unknown("data set", name, by_name)


def is_taken(name: str) -> bool:
    """Tell whether a data set is called so, or is PyG's by its name."""
    try:
        return _source(name) is not None
    except ValueError:
        return False


def dataset_names() -> tuple[str, ...]:
    """Names of all data sets whose sizes are known, sorted; PyG has more, see `sources/pyg.py`."""
    return tuple(sorted(_sources()))


def load_dataset(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """Read or generate a data set; see `read_dataset`.

    Raises:
        UsageError: no data set or option is called so, the folder or file is not there or is not
            the published set, or a package is not installed.
    """
    with as_usage(name):
        return read_dataset(name, root, **options)


@contextmanager
def as_usage(name: str) -> Iterator[None]:
    """Make what a source of data raises an error of usage."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"The data set {name!r} cannot be read.",
            why=str(error),
            fix=next_step(error)
            or "set data.root, or the variable SECURE_FGL_DATA, to the data folder",
        ) from error
    except (ImportError, ValueError) as error:
        raise usage(error) from error


def read_dataset(name: str, root: str | Path | None = None, **options: Any) -> Dataset:
    """Read or generate a data set.

    Args:
        name: one of `dataset_names()`, or a name of PyG's, `pyg/CLASS/NAME`.
        root: folder of the data files; without it the environment variable SECURE_FGL_DATA.
            Generated sets need none; PyG downloads into it.
        options: the source's own options, for example `seed` of `synthetic_banks`, or
            `split="published"`.

    Raises:
        FileNotFoundError: the folder or the file is not there; says which path was looked for.
        ImportError: the source needs a package that is not installed; names the extra.
        ValueError: unknown name or option, or a file that is not the published set.
    """
    folder = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    place = None if folder is None else Path(folder).expanduser()
    if not isinstance(name, str):
        raise ValueError(f"a data set is named by a text, not by a {type(name).__name__}")
    with nothing_unpickled():
        return _source(name).load(name, place, options)


def published_shape(name: str, options: Mapping[str, Any] | None = None) -> Shape:
    """Public sizes of a data set by name; no file is opened.

    Raises:
        ValueError: unknown name or option.
    """
    return _source(name).describe(name, options or {})


def shape_of(whole: Dataset) -> Shape:
    """Sizes of a data set in memory, which its owner makes public by planning with them."""
    if isinstance(whole, Ratings):
        return Shape(
            "rating",
            features=0,
            classes=1,
            records=whole.records,
            synthetic=whole.synthetic,
            users=whole.users,
            items=whole.items,
            lowest=whole.lowest,
            highest=whole.highest,
        )
    return Shape(
        "graph" if isinstance(whole, GraphSet) else "node",
        features=whole.x.shape[1],
        classes=whole.classes,
        records=whole.records,
        synthetic=whole.synthetic,
        multilabel=isinstance(whole, GraphSet) and whole.multilabel,
    )


def spec_of(
    name: str,
    *,
    clients: int,
    train_share: float = 0.2,
    options: Mapping[str, Any] | None = None,
    shape: Shape | None = None,
    even: bool = False,
    bound: int | None = None,
) -> DataSpec:
    """What a plan may know of a data set; no file is opened.

    `records`, the bound of the training records at one site, is the next power of two at or above
    ceil(train_share x records): one site might hold them all, and the true counts stay private.
    Where sites hold about as many each it is twice the power of two near a site's share, or
    `SMALL_BOUND`: what one site may say in a sum that is weighted by records grows with it.
    Where the options ask for the published split the bound is that of all records.

    Args:
        name: as in `load_dataset`.
        clients: number of sites.
        train_share: of all records, to be drawn for training.
        options: the source's own options.
        shape: sizes of a data set in memory; then no source is asked, and `name` is only a name.
        even: sites hold about as many records each, and each record is at one of them.
        bound: `records` itself, where a configuration gives it.

    Raises:
        ValueError: unknown name or option, fewer than one client, or a share outside (0, 1].
    """
    if not 0.0 < train_share <= 1.0:
        raise ValueError("train_share must be above 0 and at most 1")
    sizes = shape or published_shape(name, options)
    share = 1.0 if "split" in (options or {}) else train_share
    # Rounded first, so that 0.2 x 2560, in binary a little above 512, stays 512.
    most = max(1, math.ceil(round(share * sizes.records, 6)))
    whole, each = power_of_two(most), bound_near(_AT_LEAST * most / max(clients, 1))
    records = bound or (min(whole, each) if even else whole)
    public = sizes._asdict() | {"records": records}
    return DataSpec(**public, clients=clients, name=name)


def bound_near(count: float) -> int:
    """Return a bound of training records for sites of which the largest has about so many."""
    return max(SMALL_BOUND, 2 * power_of_two(int(count)))


def is_generated(plan: Plan) -> bool:
    """Tell whether all data of a run come from our own generators, and not from anybody's word.

    That data are synthetic a ``spec.yaml``, a file and a plug-in say of themselves; their errors
    may hold a real value all the same.
    """
    theirs = any(entry.startswith(plugin_entry("data", "")) for entry in plan.plugins)
    return plan.data.name in GENERATED and not plan.data.spec and not theirs


def power_of_two(count: int) -> int:
    """Return the least power of two that is not below a count: what is said of it in public."""
    return 1 << max(count - 1, 0).bit_length()
