"""The policy's floor on persons: a site with few of them takes part as one that has none.

A total over four sites says most of a site whose model rests on three patients. So the masks of
such a site are emptied before anything is computed: it trains, is scored and is tested on nothing,
and sends what a site without labels sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

from algorithms.tasks import Records, Site, Task
from protocols.forms import Algorithm
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import OWN, Config, own_root
from secure_fgl.data import Dataset, Masks, partition, read_dataset, split_masks
from secure_fgl.data.about import about
from secure_fgl.data.datasets import SMALL_BOUND, as_usage, power_of_two
from secure_fgl.data.features import scaled, scaled_part
from secure_fgl.data.kinds import masks_of, site_data
from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings, Part
from secure_fgl.data.sources._shared.pyg_files import nothing_unpickled
from secure_fgl.data.stand_ins import stand_in
from secure_fgl.errors import UsageError
from secure_fgl.run.naming import learning_seed

if TYPE_CHECKING:
    from secure_fgl.data.own import OwnSpec, Tally

TOO_FEW = (
    "training records of fewer than {} persons (the policy's minimum_records), so this site "
    "trains on nothing"
)


def persons(part: Part, mask: npt.NDArray[np.bool_]) -> int:
    """Return of how many persons the records of a mask are: users of ratings, else records."""
    if isinstance(part, ClientRatings):
        return len(np.unique(part.user[mask]))
    return int(mask.sum())


def trains_on_few(part: Part, least: int) -> bool:
    """Tell whether a site has training records, and of fewer than `least` persons."""
    return 0 < persons(part, part.train) < least


def above_floor(part: Part, least: int) -> Part:
    """Return a site's part with no record in those masks that hold fewer than `least` persons."""
    emptied = {
        name: np.zeros_like(mask)
        for name in ("train", "val", "test")
        if persons(part, mask := getattr(part, name)) < least
    }
    return replace(part, **emptied) if emptied else part


# --- What a site's data lack that whoever runs should hear: nothing stops, and little is learnt
# ---

NONE = "no training record (no label, or no role train), so this site trains on nothing"
ONE_CLASS = "all its training records are of one class"
NO_EDGE = "no site has an edge, so a graph model sees each node by itself"
_NAMED = 8  # sites that lack the same thing, each with a line of its own


def lacking(
    parts: Mapping[str, Part], called: Mapping[str, str], least: int, *, own: bool
) -> Iterator[str]:
    """Yield a line for each site that lacks something; of many, one line.

    Args:
        parts: what each client holds.
        called: what a line calls it: of own tables the site's folder.
        least: the policy's floor on persons.
        own: these are somebody's tables, and no set that a partition shared out on purpose.
    """
    found: dict[str, list[str]] = {}
    for client, part in parts.items():
        for sentence in _of(part, least, own=own):
            found.setdefault(sentence, []).append(called[client])
    for sentence, names in found.items():
        if len(names) > _NAMED:
            yield f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more: {sentence}"
        else:
            yield from (f"{name}: {sentence}" for name in names)
    graphs = [part for part in parts.values() if isinstance(part, ClientGraph)]
    if own and len(graphs) == len(parts) and not any(part.edges.size for part in graphs):
        yield NO_EDGE


def _of(part: Part, least: int, *, own: bool) -> Iterator[str]:
    if not persons(part, part.train):
        yield NONE
    elif trains_on_few(part, least):
        yield TOO_FEW.format(least)
    elif own and _of_one_class(part):
        yield ONE_CLASS


def _of_one_class(part: Part) -> bool:
    """Tell whether all training records of a site have one label."""
    if not isinstance(part, ClientGraph | ClientGraphs) or part.y.ndim != 1:
        return False
    return len(np.unique(part.y[part.train])) == 1


# --- From a configuration to the clients' sites: load, split, share out; or read what each one has
# ---


class Sizes(TypedDict):
    """Whether sums are weighted by numbers of training records, and how many a client makes up."""

    weighted: bool
    more: int


@dataclass(frozen=True)
class Loaded:
    """Attributes: sites, one a client that was asked for; whole, with its split, None where nobody
    holds it.
    """

    sites: list[Site]
    whole: tuple[Dataset, Masks] | None
    notes: tuple[str, ...] = ()


def load(  # noqa: PLR0913 - what is read, and what of it counts
    config: Config,
    task: Task,
    *,
    given: Dataset | None = None,
    only: Sequence[str] | None = None,
    agreed: str | None = None,
    stand_ins: bool = False,
    weighted: bool = False,
    more: int = 0,
    least: int = 0,
) -> Loaded:
    """Return the clients' sites, in the order of the plan or of `only`.

    Args:
        config: names the data, the split, the partition and the seed.
        task: what is learnt.
        given: the data set, if it is in memory already.
        only: whose sites. Of own data nobody else's folder is opened then, nor looked for.
        agreed: of own data the plan's digest of ``spec.yaml``, which is read once more here.
        stand_ins: return the sites of all clients: what is not of `only`, or of own data has no
            folder here, is drawn (`secure_fgl.data.stand_ins`). For audits; no run has any.
        weighted: sums are weighted by numbers of training records: then a bound of them that is
            more than twice the power of two at or above what is there is refused.
        more: records that each client makes up and trains on beside its own.
        least: a site whose training (validation, test) records are of fewer persons has none.

    Raises:
        UsageError: the data folder or file is missing or damaged, an extra is not installed, or a
            name or option is unknown.
        PlanDrift: another ``spec.yaml`` is there than was agreed on.
    """
    name, called = config.data.name, config.data.partition.called
    tallies: dict[str, Tally] = {}
    with as_usage(name):
        with nothing_unpickled():
            if name == OWN and given is None:
                read = _those_here if stand_ins and only is None else _own
                parts, names = read(config, only, agreed, tallies)
                whole = None
            else:
                shared, data = _shared(config, task, given)
                parts = dict(zip(called, shared, strict=True))
                names = {client: {} for client in parts}
                counted = [above_floor(part, least) for part in shared]
                whole = data, masks_of(data, counted, task.spec.task)
            if not stand_ins:
                declared = _declared(names, task.spec.records)
                _check_bound(parts, declared, more, weighted=weighted, called=_folders(names))
            if stand_ins:
                parts, names = _completed(config, parts, names, only)
                whole, only = None, None
        wanted = called if only is None else only
        notes = [f"{site}: {line}" for site, t in tallies.items() for line in t.sentences()]
        there, own = {n: parts[n] for n in wanted}, name == OWN and given is None
        notes += lacking(there, _folders(names), least, own=own)
        sites = _sites(there, names, task, config, least)
        return Loaded(sites, whole, tuple(notes))


def _shared(config: Config, task: Task, given: Dataset | None) -> tuple[list[Part], Dataset]:
    """Share a data set out, as only a simulator can; return the shares, and all of it scaled."""
    data, shared = config.data, config.data.partition
    split, rule = (np.random.default_rng(learning_seed(config.seed, s)) for s in _STREAMS)
    whole = given or read_dataset(data.name, data.root, **data.options)
    public = getattr(whole, "public", None) is not None
    # FedGraphNN's Ciao: ratings are held out as they come, whoever gave them.
    even = shared.name != "item_category"
    masks = split_masks(whole, data.split, rng=split, public=public, stratify=even)
    parts = partition(whole, shared.name, shared.clients, masks, rule, shared.options)
    return parts, scaled(whole, data.features)


def _declared(names: Mapping[str, Names], otherwise: int) -> Mapping[str, int]:
    """Return how many training records each client says that it has at most."""
    from secure_fgl.data.own import OwnSpec

    own = {n: (OwnSpec.model_validate_json(t["spec"]), t) for n, t in names.items() if t}
    found = {name: spec.declared(told["site"]) for name, (spec, told) in own.items()}
    return {name: found.get(name) or otherwise for name in names}


def _folders(names: Mapping[str, Names]) -> Mapping[str, str]:
    return {name: told.get("site", name) for name, told in names.items()}


def _check_bound(
    parts: Mapping[str, Part],
    declared: Mapping[str, int],
    more: int,
    *,
    weighted: bool,
    called: Mapping[str, str],
) -> None:
    """Refuse bounds that are none, or that let one client say more in a sum than any needs.

    Where all say the same number, as what is shared out, the client with the most records counts.

    Args:
        parts: what each client has.
        declared: how many training records each says that it has at most.
        more: records that each makes up beside its own.
        weighted: sums are weighted by numbers of training records.
        called: what errors call each client: of tables of one's own the site's folder.

    Raises:
        UsageError: it names all clients whose bound does not fit.
    """
    counts = {name: int(part.train.sum()) + more for name, part in parts.items()}
    if len(set(declared.values())) == 1:
        most = max(counts, key=lambda name: counts[name])
        counts = {most: counts[most]}
    wrong, fits, low, high = list[str](), list[int](), False, False
    for name, count in counts.items():
        bound, near = declared[name], power_of_two(count)
        few = count - more > bound
        loose = weighted and count > 0 and bound > max(2 * near, SMALL_BOUND)
        if few or loose:
            fits.append(max(near, SMALL_BOUND))
            wrong.append(f"of {called[name]} it is {bound}, and {fits[-1]} fits")
            low, high = low or few, high or loose
    if wrong:
        reasons = {
            "the plan is for fewer records than are there": low,
            "a larger bound lets one client move the model of all by more than any needs": high,
        }
        raise UsageError(
            f"A bound of training records does not fit: {'; '.join(wrong)}.",
            why="; ".join(reason for reason, holds in reasons.items() if holds),
            fix=f"set data.records to {max(fits)}; of tables of your own, write for each of these "
            "folders the number that fits into records: of spec.yaml, and hand that to all sites",
        )


_STREAMS = ("split", "partition")


Names = Mapping[str, Any]


def sizes(policy: PrivacyPolicy, algorithm: Algorithm[Any]) -> Sizes:
    """Return what a bound of training records depends on beside the records, for `load`."""
    made_up = policy.canaries.records if policy.canaries else 0
    return {"weighted": policy.admit(algorithm).weighted, "more": made_up}


def check_tables(config: Config, bound: int, sizes: Sizes) -> None:
    """Read all sites' own tables once; raises UsageError that names what is wrong at every site.

    Args:
        config: of the run.
        bound: of the training records of any site.
        sizes: see the function of that name.
    """
    with as_usage(config.data.name), nothing_unpickled():
        parts, names = _own(config, None, None, {})
        _check_bound(parts, _declared(names, bound), **sizes, called=_folders(names))


def _own(
    config: Config,
    only: Sequence[str] | None,
    agreed: str | None,
    tallies: dict[str, Tally],
) -> tuple[dict[str, Part], dict[str, Names]]:
    """Read one folder a client; nobody holds the whole. What was put right goes into `tallies`."""
    from secure_fgl.data.own import load_spec, site_names

    root, seed = own_root(config.data.root), learning_seed(config.seed, "split")
    spec = load_spec(root)
    if agreed is not None:
        spec.check_digest(agreed, root)
    shared, told = config.data.partition, spec.model_dump_json().encode()
    named = only if only is not None else shared.called if shared.names else None
    folders = named if named is not None else site_names(root)
    found = _each_site(root, folders, spec, seed, tallies)
    if named is None and len(folders) != shared.clients:
        raise UsageError(
            f"{root} holds {len(folders)} sites' folders, and the plan names {shared.clients} "
            "clients.",
            why="in a rehearsal every folder beside spec.yaml is one client",
            fix=f"--set data.partition.clients={len(folders)}, or add or take away folders",
        )
    clients = named if named is not None else shared.called
    names = [{"site": folder, "spec": told} for folder in folders]
    return dict(zip(clients, found, strict=True)), dict(zip(clients, names, strict=True))


def _each_site(
    root: Path, folders: Sequence[str], spec: OwnSpec, seed: int, tallies: dict[str, Tally]
) -> list[Part]:
    """Read every folder before an error is raised, so that all sites' errors come at once."""
    from secure_fgl.data.own import OwnDataError, Tally, own_site

    read, wrong = list[Part](), list[OwnDataError]()
    for folder in folders:
        try:
            read.append(own_site(root, folder, spec, seed, tallies.setdefault(folder, Tally())))
        except OwnDataError as error:
            if isinstance(error.__cause__, ImportError):
                raise  # a missing package is no matter of one site's tables
            wrong.append(error)
    if len(wrong) > 1:
        lines = "".join(f"\n  {error.what} {error.fix}".rstrip() for error in wrong)
        raise UsageError(f"The tables of {len(wrong)} sites cannot be used:{lines}")
    if wrong:
        raise wrong[0]
    return read


def _those_here(
    config: Config, only: Sequence[str] | None, agreed: str | None, tallies: dict[str, Tally]
) -> tuple[dict[str, Part], dict[str, Names]]:
    """Read the folders that are here, for the clients of these names or for the first ones."""
    here = here_of(config)
    found, told = _own(_only(config, here), only, agreed, tallies)
    if config.data.partition.names:
        return found, told
    called = dict(zip(config.data.partition.called, here, strict=False))
    return {c: found[f] for c, f in called.items()}, {c: told[f] for c, f in called.items()}


def _completed(
    config: Config,
    parts: Mapping[str, Part],
    names: Mapping[str, Names],
    only: Sequence[str] | None,
) -> tuple[dict[str, Part], dict[str, Names]]:
    """Return the parts of all clients: those that are here, the others drawn from the first."""
    here = [client for client in parts if only is None or client in only]
    found, told = {c: parts[c] for c in here}, {c: names[c] for c in here}
    for client in config.data.partition.called:
        if client not in found:
            rng = np.random.default_rng(learning_seed(config.seed, "stand-in", client))
            found[client], told[client] = stand_in(parts[here[0]], rng), names[here[0]]
    return found, told


def here_of(config: Config) -> tuple[str, ...]:
    """Return the sites' folders that are here, of own data; no file in them is opened.

    Raises:
        UsageError: there is none, or there are more than clients.
    """
    from secure_fgl.data.own import site_names

    root, shared = own_root(config.data.root), config.data.partition
    names = site_names(root)
    here = tuple(n for n in shared.called if n in names) if shared.names else names
    if not here or len(here) > shared.clients:
        raise UsageError(
            f"{root} holds {len(here)} folders of the plan's {shared.clients} clients.",
            why="a rehearsal is played on the folder of one site at least",
            fix="give the folder in which spec.yaml and this site's own folder lie with --data",
        )
    return here


def _only(config: Config, names: Sequence[str]) -> Config:
    """Return the configuration of these clients alone, to read their folders by."""
    shared = config.data.partition.model_copy(update={"names": tuple(names), "clients": len(names)})
    data = config.data.model_copy(update={"partition": shared})
    return config.model_copy(update={"data": data})


def _sites(
    parts: Mapping[str, Part], names: Mapping[str, Names], task: Task, config: Config, least: int
) -> list[Site]:
    how, seed = config.data.features, config.seed
    made: dict[int, tuple[Part, Records]] = {}  # of parts with one array of edges among them

    def site(given: Part, client: str, called: Names) -> Site:
        part = above_floor(given, least)
        edges = id(getattr(part, "edges", part))
        if edges in made:
            data = site_data(part, task.spec, made[edges][1])
        else:
            data = site_data(scaled_part(part, how), task.spec)
            made[edges] = part, data
        told = partial(about, given, how, called)  # records as they lie in the site's folder
        return Site(data, seed=learning_seed(seed, "site", client), about=told)

    return [site(part, client, names[client]) for client, part in parts.items()]
