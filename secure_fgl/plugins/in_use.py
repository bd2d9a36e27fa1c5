"""The plug-ins of one run: named, held against a plan, and offered where ours are looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from algorithms import nn
from protocols.plan.drift import code_drift
from protocols.plan.plan import Plan, plugin_entry
from secure_fgl import catalogue
from secure_fgl.data import partitions, sources
from secure_fgl.data._folder import member_names, offering
from secure_fgl.data.datasets import is_taken
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.plugins.finding import Given, find
from secure_fgl.plugins.loading import load
from secure_fgl.plugins.making import making
from secure_fgl.plugins.plugin import Kind, Plugin, read

__all__ = ["Plugins"]


class Plugins:
    """The plug-ins that a configuration names, and no others.

    Args:
        named: names, or paths of files, as a configuration has them.
        given: files or names beside it.

    Raises:
        UsageError: a plug-in is not there, cannot be used, has another's name or one of ours.
    """

    def __init__(self, named: Sequence[str] = (), given: Sequence[Given] | str | Path = ()) -> None:
        self._found = find(named, [given] if isinstance(given, str | Path) else given)
        for plugin in self._found:
            if plugin.name in _ours(plugin.kind):
                raise _shadows(plugin, plugin.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, sorted."""
        return tuple(plugin.name for plugin in self._found)

    def __iter__(self) -> Iterator[Plugin]:
        """Go through them by name."""
        return iter(self._found)

    @property
    def files(self) -> tuple[Path, ...]:
        """Where they were read."""
        return tuple(plugin.file for plugin in self._found)

    @property
    def code(self) -> dict[str, str]:
        """Their digests, under the names that these have in a plan's `code`."""
        return {plugin_entry(plugin.kind, plugin.name): plugin.digest for plugin in self._found}

    def all_of(self, kind: Kind) -> tuple[Plugin, ...]:
        """Return those of one kind."""
        return tuple(plugin for plugin in self._found if plugin.kind is kind)

    def hold_to(self, plan: Plan) -> None:
        """See that these are the plug-ins of an approved plan; nothing of them is run before.

        Raises:
            PlanDrift: one is missing, is new, or is another file than the plan's.
        """
        if differences := code_drift(plan.plugins, self.code):
            raise PlanDrift(differences)

    def unchanged(self) -> None:
        """See that every file is still what was read.

        Raises:
            UsageError: one was changed since; what runs would not be what lies there.
        """
        for plugin in self._found:
            if read(plugin.file).digest != plugin.digest:
                raise UsageError(
                    f"The plug-in {plugin.file} was changed since it was read.",
                    why="the plan was made with what it was before",
                    fix="make the plan anew, and have it approved",
                )

    def modules(self, kind: Kind) -> dict[str, ModuleType]:
        """Return the modules of one kind by name; the first call in a process runs them."""
        return {plugin.name: load(plugin) for plugin in self.all_of(kind)}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let them be found by name, beside ours, until the context ends; runs them.

        Raises:
            UsageError: one cannot be run, is not what its kind is, or takes a name of ours.
        """
        if not self._found:
            yield
            return
        data = self.modules(Kind.DATA)
        self._check_names(data)
        files = {
            sources.__name__: data,
            partitions.__name__: self.modules(Kind.PARTITION),
        }
        with ExitStack() as stack:
            stack.enter_context(catalogue.offering(self.modules(Kind.ALGORITHM)))
            stack.enter_context(nn.offering(cast(Any, self.modules(Kind.MODEL)), making))
            stack.enter_context(offering(files))
            yield

    def _check_names(self, data: Mapping[str, ModuleType]) -> None:
        """Raise UsageError where a plug-in's data set has a name of ours, or two have one."""
        seen: dict[str, Plugin] = {}
        for plugin in self.all_of(Kind.DATA):
            for name in data[plugin.name].NAMES:
                with offering({}):
                    taken = is_taken(name) or name == "own"
                if taken:
                    raise _shadows(plugin, name)
                if name in seen:
                    raise UsageError(
                        f"Two plug-ins have a data set {name!r}.",
                        why=f"{seen[name].file} and {plugin.file}",
                        fix="rename one of the data sets",
                    )
                seen[name] = plugin


def _ours(kind: Kind) -> tuple[str, ...]:
    """Return the names of ours of one kind, which no plug-in takes."""
    with catalogue.offering({}), nn.offering({}), offering({}):
        if kind is Kind.ALGORITHM:
            return catalogue.algorithm_names()
        if kind is Kind.MODEL:
            return nn.model_names()
        return member_names(sources if kind is Kind.DATA else partitions)


def _shadows(plugin: Plugin, name: str) -> UsageError:
    return UsageError(
        f"The plug-in {plugin.file} takes the name {name!r}, which is one of ours.",
        why="whoever reads a plan or a report would take it for ours",
        fix="choose another name: a plug-in stands beside what there is, never in its place",
    )
