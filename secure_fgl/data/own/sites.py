"""From a site's folder to what the site holds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, MutableMapping
from pathlib import Path

import numpy as np

from protocols.strict import nearest
from secure_fgl.data.own._saved import SAVED, read_saved
from secure_fgl.data.own.kinds import VOCABULARY, read_molecules, read_nodes, read_ratings
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.own.tables import Found, OwnDataError, Tally, find
from secure_fgl.data.records import Part, split_masks
from secure_fgl.data.sharing import induce

__all__ = ["load_site", "load_sites", "own_site", "read_site", "site_names", "site_rng"]

_TABLES: dict[str, tuple[str, Callable[[Path, OwnSpec, Tally, bool], Found]]] = {
    "node": ("nodes", read_nodes),
    "graph": ("molecules", read_molecules),
    "rating": ("ratings", read_ratings),
}


def site_rng(seed: int, name: str) -> np.random.Generator:
    """The generator of one site's split: of the run's seed and the site's name, of nothing else.

    So a site draws the same split alone as in a simulation over all folders.
    """
    return np.random.default_rng([seed, *hashlib.sha256(name.encode()).digest()])


def _no_folder(place: Path) -> OwnDataError:
    """The error for a site whose folder is not there; it names the folder that is most like it."""
    above = place.parent
    there = sorted(f.name for f in above.iterdir() if f.is_dir()) if above.is_dir() else []
    hint = nearest(place.name, there) if there else f"nothing lies in {above}"
    why = "each site's tables lie in a folder of its name beside spec.yaml"
    return OwnDataError(place, "there is no such folder", why=why, fix=hint)


def site_names(root: str | Path) -> tuple[str, ...]:
    """Names of the sites' folders under `root`, sorted; no file in them is opened.

    Hidden folders and ``vocabulary`` are none.

    Raises:
        OwnDataError: `root` cannot be listed, or holds no such folder.
    """
    folder = Path(root).expanduser()
    try:
        names = sorted(
            entry.name
            for entry in folder.iterdir()
            if entry.is_dir() and entry.name != VOCABULARY and not entry.name.startswith(".")
        )
    except OSError as error:
        what = f"the folder cannot be listed ({error.strerror})"
        raise OwnDataError(folder, what, fix="set data.root to the folder of spec.yaml") from error
    if not names:
        fix = "make one folder a site beside spec.yaml; see docs/own-data.md"
        raise OwnDataError(folder, "there is no folder of a site", fix=fix)
    return tuple(names)


def read_site(
    folder: str | Path, spec: OwnSpec, tally: Tally | None = None, *, labelled: bool = True
) -> Found:
    """Read a site's files, before roles are drawn.

    Args:
        folder: see `load_site`, as for all that follow.
        spec: what the sites agreed on.
        tally: counts what was put right.
        labelled: False where records are to be predicted: no label and no role is read, and a
            rating may be missing (NaN).

    Raises:
        OwnDataError, ImportError: as `load_site`.
    """
    place = Path(folder).expanduser()
    place = place if place.name else place.resolve()  # a vocabulary lies beside it
    if not place.is_dir():
        raise _no_folder(place)
    stem, read = _TABLES[spec.task]
    saved = place / SAVED
    if saved.is_file():
        if table := find(place, stem):
            what = f"{SAVED} and {table.name} are both there, and only one can be meant"
            raise OwnDataError(place, what, fix="take one of them away")
        place, read = saved, read_saved
    return read(place, spec, tally if tally is not None else Tally(), labelled)


def load_site(
    folder: str | Path, spec: OwnSpec, rng: np.random.Generator, tally: Tally | None = None
) -> Part:
    """What one site holds, of the kind that the spec's task asks for.

    Roles come from the file's ``split`` column (or a `Data`'s masks) if it has one, else they are
    drawn by the spec's shares.

    Args:
        folder: the site's folder; a vocabulary is looked for beside it.
        spec: what the sites agreed on.
        rng: draws the split; see `site_rng`.
        tally: counts what was put right (self-loops, repeated edges), if it is wanted.

    Raises:
        OwnDataError: anything in the files that cannot be used; names file, row and column.
        ImportError: molecules without RDKit; names the extra.
    """
    found = read_site(folder, spec, tally)
    if found.masks is not None:
        masks = found.masks
    elif spec.split == "column":  # every reader asks for the column; this is the second lock
        raise OwnDataError(found.path, "no roles are stated", column="split")
    else:
        masks = split_masks(found.whole, spec.split, rng=rng)
    if (most := spec.declared(Path(folder).name)) is None:
        what = "records of spec.yaml names other folders and not this site's"
        raise OwnDataError(found.path, what, fix="agree on a power of two for every site's folder")
    if int(masks.train.sum()) > most:
        what = "there are more training records than records of spec.yaml allows"
        fix = "agree on a greater power of two, at every site"
        raise OwnDataError(found.path, what, fix=fix)
    return induce(found.whole, np.arange(found.whole.records), masks)


def own_site(
    root: str | Path, name: str, spec: OwnSpec, seed: int, tally: Tally | None = None
) -> Part:
    """What the site `name` holds: ``root/name``, and beside it a vocabulary that the spec names.

    No other folder is opened or listed, so that a site has the same record and the same split alone
    as in a rehearsal.

    Args:
        root: the folder of ``spec.yaml``.
        name: the site's own, which is that of its folder.
        spec: what the sites agreed on.
        seed: of the splits.
        tally: counts what was put right.

    Raises:
        OwnDataError, ImportError: as `load_site`.
    """
    return load_site(Path(root).expanduser() / name, spec, site_rng(seed, name), tally)


def load_sites(
    root: str | Path,
    spec: OwnSpec,
    seed: int,
    tallies: MutableMapping[str, Tally] | None = None,
) -> dict[str, Part]:
    """What every site under `root` holds, by folder name, sorted. For simulations and rehearsals.

    Args:
        root: the folder of ``spec.yaml``.
        spec: what the sites agreed on.
        seed: of the splits.
        tallies: gets each site's counts by name, if it is given.

    Raises:
        OwnDataError: as `load_site`, or there is no site.
    """
    sites, folder = dict[str, Part](), Path(root).expanduser()
    for name in site_names(folder):
        tally = Tally()
        sites[name] = own_site(folder, name, spec, seed, tally)
        if tallies is not None:
            tallies[name] = tally
    return sites
