"""The three kinds of tasks, and what the face needs of each: the task, its sites' data, the whole.

A fourth kind is one more entry of `_KINDS`, beside its file in `algorithms/tasks/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from algorithms.tasks import DataSpec, Kind, Records, Site, Task
from protocols.plan.plan import DataPlan
from secure_fgl.config import DataConfig, ModelConfig
from secure_fgl.data.datasets import shape_of, spec_of
from secure_fgl.data.records import Dataset, Masks, Part
from secure_fgl.data.sharing import gives_test, is_even, makes_split
from secure_fgl.errors import UsageError, usage
from secure_fgl.reasons import in_plugin

__all__ = [
    "EDGES",
    "build_task",
    "check_module",
    "data_plan",
    "masks_of",
    "model_name",
    "public_spec",
    "site_data",
]


EDGES = "undirected, unweighted, of one kind"
"""What all tasks on graphs learn from edges; weights, features and types of edges are not read."""


class _Kind(NamedTuple):
    """Attributes: default model, and which field numbers a part's records in the whole set."""

    model: str
    numbers: str


_KINDS: dict[Kind, _Kind] = {
    "node": _Kind("gcn", "nodes"),
    "graph": _Kind("gin", "graphs"),
    "rating": _Kind("dot", "rows"),
}


def build_task(
    spec: DataSpec, settings: ModelConfig, *, preferred: Mapping[Kind, str] | None = None
) -> Task:
    """Return the task for data of this kind.

    Args:
        spec: what is known of the data in public.
        settings: the model and its optimiser.
        preferred: models that the algorithm takes where the settings name none, by kind.

    Raises:
        UsageError: no such model for this kind of task, or an option is out of range.
    """
    options = {k: v for k, v in settings.model_dump(exclude={"options"}).items() if v is not None}
    options.pop("name", None)
    options["model"] = model_name(spec.task, settings, preferred)
    if own := sorted({*settings.options} & {*ModelConfig.model_fields}):
        raise UsageError(
            f"model.options holds {own[0]!r}, which is a key of model itself.",
            why="there its kind and bounds are not looked at",
            fix=f"set model.{own[0]}",
        )
    try:
        return cast(Task, _class(spec.task, options["model"])(spec, **options, **settings.options))
    except TypeError as error:
        if in_plugin(error):
            raise _broken(error) from error
        raise UsageError(
            f"The {spec.task} task does not take one of these model options: "
            f"{', '.join(sorted(settings.options)) or '-'}.",
            fix="ratings take inputs: constant or degree; ego models take fan_out: 6; other tasks "
            "take none",
        ) from error
    except ValueError as error:
        raise (_broken(error) if in_plugin(error) else usage(error)) from error


def _broken(error: Exception) -> UsageError:
    """Return what an error in a plug-in's model is said as; it was built of sizes, without data."""
    return UsageError(
        f"The model of a plug-in cannot be built: {type(error).__name__}: {str(error)[:300]}.",
        why=f"the code of the plug-in raised it: {'; '.join(in_plugin(error))}",
        fix="mend the plug-in; secure-fgl check FILE runs it on generated data",
    )


def model_name(
    kind: Kind, settings: ModelConfig, preferred: Mapping[Kind, str] | None = None
) -> str:
    """Return which model is meant where the settings may name none; see `build_task`."""
    return settings.name or (preferred or {}).get(kind, _KINDS[kind].model)


def data_plan(spec: DataSpec) -> DataPlan:
    """Return what a plan says of the data."""
    scale = (repr(spec.lowest), repr(spec.highest)) if spec.task == "rating" else ()
    named = {n: getattr(spec, n) for n in DataPlan.model_fields if n not in ("scale", "edges")}
    return DataPlan(**named, scale=scale, edges="" if spec.task == "rating" else EDGES)


def public_spec(data: DataConfig, whole: Dataset | None) -> DataSpec:
    """Return what is known in public of a data set that is shared out.

    Args:
        data: its name, split and partition.
        whole: the data set, if it is in memory already; only its sizes are looked at.

    Raises:
        ValueError: unknown name or option.
    """
    shared, shape = data.partition.name, None if whole is None else shape_of(whole)
    given = getattr(whole, "public", None) is not None  # a split of its own, of any share
    spec = spec_of(
        data.name,
        clients=data.partition.clients,
        train_share=1.0 if given or makes_split(shared) else data.split[0],
        options=data.options,
        shape=shape,
        even=is_even(shared),
        bound=data.records,
    )
    return replace(spec, common=gives_test(shared))


def check_module(task: Task) -> None:
    """Refuse a model from outside our folder whose buffers change while it trains.

    Raises:
        UsageError: one does: each client would hold another value, and nobody adds them up.
    """
    module = task.module()  # type: ignore[attr-defined]
    if not any(True for _ in module.buffers()):
        return
    site = Site(site_data(_toy(task.spec), task.spec), seed=0)
    try:
        moved = task.moved_buffers(site)  # type: ignore[attr-defined]
    except Exception:  # whatever it is, it is met where it trains, with its place
        return
    if moved:
        raise UsageError(
            f"The model {task._file.NAME!r} holds buffers that training changes: "  # type: ignore[attr-defined]
            f"{', '.join(moved)}.",
            why="clients send parameters, and nobody adds up what buffers hold: every site would "
            "predict with statistics of its own, and the model that is kept with none",
            fix="use LayerNorm, or GraphNorm without running statistics "
            "(BatchNorm: track_running_stats=False)",
        )


def _toy(spec: DataSpec) -> Any:
    """Return a few records on which a module can be run; nothing is said by their values."""
    rng, count = np.random.default_rng(0), 4
    roles = {"train": np.ones(count, dtype=bool)} | dict.fromkeys(
        ("val", "test"), np.zeros(count, dtype=bool)
    )
    if spec.task == "rating":
        count = min(count, spec.items)
        roles = {name: mask[:count] for name, mask in roles.items()}
        columns = {"user": np.zeros(count, dtype=np.int64), "item": np.arange(count)}
        return SimpleNamespace(**columns, rating=np.full(count, spec.highest), **roles)
    x = rng.normal(size=(count * (2 if spec.task == "graph" else 1), spec.features))
    edges = np.array([[0, 2], [1, 3]])
    labels = np.zeros((count, spec.classes) if spec.multilabel else count, dtype=np.int64)
    shape = {"sizes": np.full(count, 2)} if spec.task == "graph" else {}
    return SimpleNamespace(x=x.astype(np.float32), edges=edges, y=labels, **shape, **roles)


def site_data(part: Part, spec: DataSpec, like: Records | None = None) -> Records:
    """Return a client's part, ready for training.

    Args:
        part: what the client holds.
        spec: what is known of the data in public.
        like: of a client that holds the very same nodes and edges, whose arrays are shared; only
            node tasks have such clients.

    Raises:
        ValueError: arrays of the part disagree; the message says which.
    """
    if spec.task == "node":
        from algorithms.tasks.inputs import NodeData

        return NodeData.from_graph(cast(Any, part), cast(Any, like))
    if spec.task == "graph":
        from algorithms.tasks.inputs import GraphsData

        return GraphsData.from_graphs(cast(Any, part))
    from algorithms.tasks.inputs import RatingsData

    return RatingsData.from_ratings(cast(Any, part), spec.users, spec.items)


def masks_of(whole: Dataset, parts: Sequence[Part], kind: Kind) -> Masks:
    """Return the union of the clients' splits: what one owner of everything would train on.

    A record that is held out anywhere trains nowhere.
    """
    train, val, test = (np.zeros(whole.records, dtype=bool) for _ in range(3))
    for part in parts:
        numbers = getattr(part, _KINDS[kind].numbers)
        for mask, own in ((train, part.train), (val, part.val), (test, part.test)):
            mask[numbers[own]] = True
    return Masks(train & ~val & ~test, val & ~test, test)


def _class(kind: Kind, model: str) -> Any:
    # Imported here: most runs need one of them.
    if kind == "node":
        from algorithms.nn import on_egos

        if on_egos(model):
            from algorithms.tasks.ego import EgoTask

            return EgoTask
        from algorithms.tasks.node import NodeTask

        return NodeTask
    if kind == "graph":
        from algorithms.tasks.graph import GraphTask

        return GraphTask
    from algorithms.tasks.rating import RatingTask

    return RatingTask
