"""Algorithms by name; the folder `algorithms/` is the registry, and plug-ins stand beside it."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

import algorithms
from algorithms.tasks import Kind, Task
from protocols.forms import Algorithm
from protocols.strict import nearest
from secure_fgl.config import ALL_ARE_ASKED, SAMPLING, SOME_ARE_ASKED
from secure_fgl.errors import UsageError
from secure_fgl.reasons import in_plugin

_OFFERED: ContextVar[Mapping[str, ModuleType]] = ContextVar("algorithms from outside the folder")


@contextmanager
def offering(files: Mapping[str, ModuleType]) -> Iterator[None]:
    """Let algorithms from outside the folder be found by name; none of ours gives way to them."""
    before = _OFFERED.set(files)
    try:
        yield
    finally:
        _OFFERED.reset(before)


def algorithm_names() -> tuple[str, ...]:
    """Return the names of all algorithms: files of the folder that define ``ALGORITHM``."""
    found = {name for name in _files() if hasattr(_module(name), "ALGORITHM")}
    return tuple(sorted({*found, *_OFFERED.get({})}))


def _files() -> set[str]:
    found = pkgutil.iter_modules(algorithms.__path__)
    return {module.name for module in found if not module.ispkg}


def _module(name: str) -> Any:
    if name in (offered := _OFFERED.get({})) and name not in _files():
        return offered[name]
    return import_module(f"algorithms.{name}")


def algorithm_summary(name: str) -> str:
    """Return the first line of the algorithm's file: its name, citation and formula."""
    return (_module(name).__doc__ or "").strip().splitlines()[0]


def algorithm_options(name: str) -> tuple[str, ...]:
    """Return the names of an algorithm's own options."""
    parameters = inspect.signature(_module(name).ALGORITHM).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "epochs")


def preferred_model(name: str) -> Mapping[Kind, str]:
    """Return the models that an algorithm takes where none is named, by kind of task.

    Its file says so in ``MODELS``; an unknown algorithm prefers none.
    """
    if name not in algorithm_names():
        return {}
    found: Mapping[Kind, str] = getattr(_module(name), "MODELS", {})
    return found


def build_algorithm(
    name: str, task: Task, *, epochs: int, options: Mapping[str, Mapping[str, Any]]
) -> Algorithm[Any]:
    """Return an algorithm for a task.

    Args:
        name: one of :func:`algorithm_names`.
        task: what is learnt.
        epochs: local epochs per round.
        options: per algorithm a block of options; all blocks are checked, one is read.

    Raises:
        UsageError: unknown algorithm or option, or a value that it refuses.
    """
    known = list(algorithm_names())
    for named in (name, *options):
        if named not in known:
            raise UsageError(f"There is no algorithm {named!r}.", fix=nearest(named, known))
    for named, block in options.items():
        allowed = list(algorithm_options(named))
        for option in block:
            if option not in allowed:
                sampling = option in SAMPLING
                fix = nearest(option, allowed) if allowed else "it has no options"
                raise UsageError(
                    f"Algorithm {named!r} has no option {option!r}.",
                    why=ALL_ARE_ASKED if sampling else "",
                    fix=SOME_ARE_ASKED if sampling else fix,
                )
        _check_types(named, block)
    try:
        chosen = options.get(name, {})
        built: Algorithm[Any] = _module(name).ALGORITHM(task, epochs=epochs, **chosen)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"Algorithm {name!r} cannot be run like this: {error}", why="; ".join(in_plugin(error))
        ) from error
    if name in _OFFERED.get({}) and getattr(built, "name", None) != name:
        raise UsageError(
            f"The plug-in {name!r} makes an algorithm that is called otherwise.",
            why="plan, ledgers and report would name something else than what runs",
            fix=f"return Algorithm(name={name!r}, ...) from its ALGORITHM",
        )
    return built


def _finite(hint: Any) -> TypeAdapter[Any]:
    """Return the check of a type; NaN and infinity are no numbers here."""
    return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False))


def _check_types(name: str, block: Mapping[str, Any]) -> None:
    hints = get_type_hints(_module(name).ALGORITHM)
    for option, value in block.items():
        try:
            _finite(hints[option]).validate_python(value, strict=True)
        except ValidationError as error:
            wanted = getattr(hints[option], "__name__", str(hints[option]))
            kind = "a finite number" if hints[option] is float else f"of the type {wanted}"
            raise UsageError(
                f"The option {option!r} of algorithm {name!r} must be {kind}.",
                fix="see the options of ALGORITHM in its file",
            ) from error
