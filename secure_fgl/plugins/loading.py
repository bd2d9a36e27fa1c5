"""Running a plug-in's bytes as a module, once a process, and looking at what it offers.

The module is named after its plug-in and its digest, below a name that no distribution has, so that
no plug-in takes a module's place and two versions never mix. The guard (`secure_fgl._floors`) knows
the modules that were made here, and refuses any other below that name.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from inspect import signature
from types import CodeType, ModuleType
from typing import get_args

from algorithms.tasks import Kind as TaskKind
from secure_fgl import _floors
from secure_fgl.errors import UsageError
from secure_fgl.muting import mute
from secure_fgl.plugins.plugin import Kind, Plugin

__all__ = ["PluginLoader", "load", "making", "run"]


class PluginLoader(Loader):
    """Makes a module of bytes that were read already; nothing is read anew and nothing cached."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the plug-in's bytes in its module."""
        exec(self._code(), vars(module))  # noqa: S102 - trusted code, named and digested

    def _code(self) -> CodeType:
        return compile(self._plugin.source, str(self._plugin.file), "exec", dont_inherit=True)


def module_name(plugin: Plugin) -> str:
    """Return the name of a plug-in's module."""
    return f"{_floors.PLUGINS}.{plugin.name}_{plugin.digest[:16]}"


def load(plugin: Plugin) -> ModuleType:
    """Return a plug-in's module; the first call in a process runs it.

    Raises:
        UsageError: it raises while it is run, or what it offers is not of its kind.
    """
    name = module_name(plugin)
    if (found := sys.modules.get(name)) is not None:
        _floors.check_plugin(found)
        return found
    module = run(plugin)
    _fits(plugin, module)
    return module


def run(plugin: Plugin) -> ModuleType:
    """Run a plug-in anew, in a module that takes the place of an earlier one; see `load`."""
    name = module_name(plugin)
    loader = PluginLoader(plugin)
    spec = ModuleSpec(name, loader, origin=str(plugin.file))
    spec.has_location = True
    module = module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        with mute(f"The plug-in {plugin.name}, while it was imported,"):
            loader.exec_module(module)
    except Exception as error:
        _put_back(name, before)
        raise _broken(plugin, error) from error
    except BaseException:
        _put_back(name, before)
        raise
    _floors.approve(module)
    return module


def _put_back(name: str, before: ModuleType | None) -> None:
    if before is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = before


def _broken(plugin: Plugin, error: Exception) -> UsageError:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(plugin.file)]
    where = f", line {lines[-1]}" if lines else ""
    return UsageError(
        f"The plug-in {plugin.file} raises {type(error).__name__} while it is imported{where}.",
        why=str(error)[:300],
        fix="correct the file; nothing was sent and no data was read",
    )


def _fits(plugin: Plugin, module: ModuleType) -> None:
    """Raise UsageError unless a module offers what its kind offers."""
    checks = {
        Kind.ALGORITHM: _algorithm,
        Kind.MODEL: _model,
        Kind.DATA: _data,
        Kind.PARTITION: _partition,
    }
    if problem := checks[plugin.kind](plugin, vars(module)):
        _floors.disown(module)
        sys.modules.pop(module.__name__, None)
        raise UsageError(
            f"The plug-in {plugin.file} is no {plugin.kind} as ours are: {problem}.",
            fix="compare it with docs/own-algorithm.md",
        )


def _algorithm(plugin: Plugin, offered: Mapping[str, object]) -> str:
    return "" if callable(offered["ALGORITHM"]) else "ALGORITHM is no function of a task"


def _model(plugin: Plugin, offered: Mapping[str, object]) -> str:
    if offered["NAME"] != plugin.name:
        return f"its NAME is not the file's ({plugin.name!r})"
    if offered["TASK"] not in get_args(TaskKind):
        return f"its TASK is none of {', '.join(get_args(TaskKind))}"
    build = offered["build"]
    if not callable(build):
        return "build is no function"
    return _takes_all(build) if offered["TASK"] != "rating" else ""


_SIZES = "features, classes, hidden, layers, dropout"


def _takes_all(build: Callable[..., object]) -> str:
    """Say what a model's `build` does not take; nothing if it takes all."""
    try:
        found = signature(build)
    except (TypeError, ValueError):  # no text says what it takes
        return ""
    try:
        found.bind(*_SIZES.split(", "))
    except TypeError:
        return f"build takes {found}, and is called with ({_SIZES})"
    return ""


def _data(plugin: Plugin, offered: Mapping[str, object]) -> str:
    names = offered["NAMES"]
    if not isinstance(names, Mapping) or not names or not all(isinstance(n, str) for n in names):
        return "NAMES says of no data set what it is called"
    if "PREFIX" in offered:
        return "PREFIX would claim names that nobody can list"
    functions = all(callable(offered[name]) for name in ("describe", "load"))
    return "" if functions else "describe and load are no functions"


def _partition(plugin: Plugin, offered: Mapping[str, object]) -> str:
    kinds = offered["KINDS"]
    if not isinstance(kinds, tuple) or not kinds or not set(kinds) <= set(get_args(TaskKind)):
        return f"KINDS is no tuple of {', '.join(get_args(TaskKind))}"
    rule = offered.get("cut", offered.get("assign"))
    return "" if callable(rule) else "assign or cut is no function"


@contextmanager
def making(seed: int) -> Iterator[None]:
    """Let modules draw from a stream of this seed, and what they leave open be NaN.

    torch's deterministic mode fills what `torch.empty` leaves open with NaN. The process's own
    stream and mode are as before when the context ends.
    """
    import torch

    before = torch.get_deterministic_debug_mode()
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        torch.set_deterministic_debug_mode("error")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
