"""Graph neural networks, one per file; the folder is the registry.

A model's file is called like the model and offers

* `NAME`, equal to the file's name, and `TASK`, the kind of task it is for;
* for nodes and graphs, `PROPAGATION` (see `algorithms.nn._shared.sparse.propagation`);
* for nodes, `build(features, classes, hidden, layers, dropout) -> GraphModel`, whose parameters
  are uninitialised here: the task draws them, and writes every one of them from a flat vector
  before use. A file from outside the folder may make them itself, as its modules do, and buffers
  that stay as they are (`algorithms.nn._shared.modules.started`). Graph models
  (`algorithms.nn._shared.graphs`) take batches of graphs instead; rating models
  (`algorithms.nn._shared.ratings`) are built from the numbers of users and items;
* for ratings, `ALONE = True` if every site must be a single user (`algorithms.nn._shared.ratings`);
* for nodes and graphs, `plain(module) -> torch.nn.Module`: the same model, filled alike, in layers
  of PyTorch Geometric (`algorithms.nn._shared.plain`); for ratings `plain(module, scale)` where
  there are such layers (`algorithms.nn._shared.plain`);
* `layout`, which takes what `build` takes and says the parameters' names and shapes without torch
  (`algorithms.nn._shared.layouts`); where a file has none, a model is built to see them;
* for nodes, `LINEAR = True` if its outputs are P^K X W + b with K = `layers`, so that P^K X may be
  computed once and the identity be given as P;
* for nodes, `FAN_OUT` if it is trained on so many drawn neighbours a node and `layers` hops
  (`algorithms.tasks.inputs`), and predicts from all of them;
* for nodes, `EGOS = True` if `build` gives an `algorithms.nn._shared.modules.EgoNet`, trained on
  ego-graphs.

A file of ours imports torch inside its functions alone: a plan knows of a model what its file says,
and loads no torch. Its module is made by the `layout` (`algorithms.nn._shared.modules.Parameters`),
so that shapes are written once.

Parameters are ordered as the module registers them, layer by layer, weights (in, out) before the
bias. This order is the meaning of the flat vectors that travel.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from algorithms.nn._shared.layouts import Inputs, Layout, Rows, Weighing
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.modules import GraphModel
    from algorithms.nn._shared.ratings import RatingModel

__all__ = [
    "GraphModel",
    "ModelFile",
    "RatingFile",
    "alone",
    "head",
    "layout",
    "maker",
    "model",
    "model_names",
    "offering",
    "on_egos",
    "rating_model",
]


class ModelFile(Protocol):
    """What a model's file offers."""

    NAME: str
    TASK: Kind
    PROPAGATION: Weighing

    def build(
        self, features: int, classes: int, hidden: int, layers: int, dropout: float
    ) -> GraphModel:
        """An uninitialised model."""

    def plain(self, module: torch.nn.Module) -> torch.nn.Module:
        """The same model, filled alike, in layers of PyTorch Geometric."""


_OFFERED: ContextVar[Mapping[str, ModelFile]] = ContextVar("models from outside the folder")


Making = Callable[[int], AbstractContextManager[None]]
_MAKERS: dict[str, Making] = {}


@contextmanager
def offering(models: Mapping[str, ModelFile], making: Making | None = None) -> Iterator[None]:
    """Let models from outside the folder be found by name; none of ours gives way to them.

    Args:
        models: files by name.
        making: surroundings in which their modules are built, by a seed; None: they are as ours.
    """
    if making is not None:
        _MAKERS.update((str(getattr(file, "__name__", "")), making) for file in models.values())
    before = _OFFERED.set(models)
    try:
        yield
    finally:
        _OFFERED.reset(before)


def on_egos(name: str) -> bool:
    """Tell whether a node model is trained on ego-graphs; False for an unknown name."""
    return name in model_names("node") and bool(getattr(_file(name), "EGOS", False))


def alone(name: str) -> bool:
    """Tell whether a rating model is for sites of one user; False for an unknown name."""
    return name in model_names("rating") and bool(getattr(_file(name), "ALONE", False))


def maker(file: Any) -> Making | None:
    """Return what a file's modules are built in, by a seed; None for ours, which make nothing."""
    return _MAKERS.get(str(getattr(file, "__name__", "")))


def __getattr__(name: str) -> Any:
    """Let files of one's own take `GraphModel` from here; it loads torch."""
    if name == "GraphModel":
        from algorithms.nn._shared.modules import GraphModel

        return GraphModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def layout(file: Any, *sizes: Any, **options: Any) -> Layout:
    """Return the parameters of a file's model, as the file says or as a built model has them."""
    if (declared := getattr(file, "layout", None)) is not None:
        return cast(Layout, declared(*sizes, **options))
    from algorithms.nn._shared.modules import Stack

    module = file.build(*sizes, **options)
    if not hasattr(module, "named_parameters"):
        kind = type(module).__name__
        raise ValueError(f"build of the model {file.NAME!r} returns {kind}, and no torch module")
    return Layout.of(module, head(module), stack=isinstance(module, Stack))


def head(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Parameters of the last layer, which FedPer keeps at the client (all, of a single layer).

    A module says so itself with an attribute `head`, a module of its last parameters; otherwise it
    is the last of its `layers`.
    """
    layers = getattr(module, "layers", None)
    last = getattr(module, "head", None) or (layers[-1] if layers is not None else module)
    return list(last.parameters())


def model_names(task: Kind | None = None) -> tuple[str, ...]:
    """Names of all models (of one kind of task), sorted."""
    names = {*_ours(), *_OFFERED.get({})}
    return tuple(name for name in sorted(names) if task is None or task == _file(name).TASK)


def _ours() -> set[str]:
    return {found.name for found in pkgutil.iter_modules(__path__) if not found.ispkg}


def _file(name: str) -> ModelFile:
    if name in (offered := _OFFERED.get({})) and name not in _ours():
        return offered[name]
    return cast(ModelFile, import_module(f"{__name__}.{name}"))


def _kind(name: str) -> Kind | None:
    """Return for which tasks a model is; None for an unknown name."""
    return _file(name).TASK if name in model_names() else None


def model(name: str, task: Kind = "node") -> ModelFile:
    """The model's file by its name.

    Raises:
        ValueError: no such model for this kind of task; the message names the nearest one.
    """
    known = model_names(task)
    if name not in known and (kind := _kind(name)):
        raise ValueError(
            f"the model {name!r} is for {kind} tasks, and this is a {task} task; known models: "
            f"{', '.join(known)}"
        )
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"no model for {task} tasks is called {name!r}; {hint}known models: {', '.join(known)}"
        )
    return _file(name)


class RatingFile(Protocol):
    """What a rating model's file offers beside `NAME` and `TASK`."""

    NAME: str
    TASK: Kind

    def build(
        self, users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
    ) -> RatingModel:
        """An uninitialised model."""

    def rows(self, own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
        """Places of a site's parameters in the flat vector; None if every site needs them all.

        Args:
            own: numbers of the users and of the items that the site knows, ascending.
            sizes: how many users and items there are.
            hidden: as in `build`.
        """


@lru_cache
def rating_model(name: str) -> RatingFile:
    """The file of a rating model by its name.

    Raises:
        ValueError: no such model; the message names the nearest one.
    """
    return cast(RatingFile, model(name, "rating"))
