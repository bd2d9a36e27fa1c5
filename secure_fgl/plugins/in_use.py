"""The plug-ins of one run: found by name, held against a plan, offered where ours are looked for.

An installed package offers a plug-in by an entry point in one of four groups::

    [project.entry-points."secure_fgl.algorithms"]
    my_fedprox = "my_package.my_fedprox"

Alone that does nothing: it is looked for when its name is named. Its module is found as a file and
read as any other plug-in; neither it nor the packages that it lies in are imported on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from algorithms import nn
from protocols.plan.plan import Plan, code_drift, plugin_entry
from protocols.strict import nearest
from secure_fgl import catalogue
from secure_fgl.data import partitions, sources
from secure_fgl.data._folder import member_names, offering
from secure_fgl.data.datasets import is_taken
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.plugins.loading import load, making
from secure_fgl.plugins.plugin import Kind, Plugin, check_no_folder, read

__all__ = ["GROUPS", "Given", "Plugins", "find", "installed_names"]

Given = str | Path | Plugin
"""What somebody gives: a file's path, an installed plug-in's name, or one that was read."""

GROUPS = {
    "secure_fgl.algorithms": Kind.ALGORITHM,
    "secure_fgl.models": Kind.MODEL,
    "secure_fgl.data": Kind.DATA,
    "secure_fgl.partitions": Kind.PARTITION,
}
"""Groups of entry points, and what a module that one names offers."""


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


def find(named: Iterable[str], given: Sequence[Given] = ()) -> tuple[Plugin, ...]:
    """Return the plug-ins of a configuration, read and not run, by name.

    Args:
        named: what the configuration names: names, or paths of files.
        given: beside it. One that is given stands for the name of its file.

    Raises:
        UsageError: a file cannot be used, a name is nobody's, or two plug-ins have one name.
    """
    found: dict[str, Plugin] = {}
    for one in given:
        _add(found, one if isinstance(one, Plugin) else _one(str(one)))
    for text in named:
        if _is_path(text):
            _add(found, read(Path(text).expanduser()))
    for text in named:
        if not _is_path(text) and text not in found:
            _add(found, _installed(text))
    return tuple(found[name] for name in sorted(found))


def _is_path(text: str) -> bool:
    return text.endswith(".py") or "/" in text


def _one(text: str) -> Plugin:
    return read(Path(text).expanduser()) if _is_path(text) else _installed(text)


def _add(found: dict[str, Plugin], plugin: Plugin) -> None:
    other = found.setdefault(plugin.name, plugin)
    if (other.source, other.kind) != (plugin.source, plugin.kind):
        raise UsageError(
            f"Two plug-ins are called {plugin.name!r}.",
            why=f"{other.file} and {plugin.file}",
            fix="rename one of the files, and what it calls itself",
        )


def installed_names() -> list[tuple[str, str, str]]:
    """Return name, kind and module of every installed entry point; nothing is imported."""
    rows = ((p.name, str(kind), p.value) for group, kind in GROUPS.items() for p in _points(group))
    return sorted(rows)


def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _installed(name: str) -> Plugin:
    """Return an installed plug-in by its entry point's name."""
    places = [(kind, point) for group, kind in GROUPS.items() for point in _points(group)]
    found = [(kind, point) for kind, point in places if point.name == name]
    if not found:
        check_no_folder(Path(name))
    if not found:
        known = [point.name for _, point in places]
        raise UsageError(
            f"There is no plug-in {name[:40]!r}.",
            why="no file of that name was given, and no installed package offers it",
            fix=f"give its file with --plugin {name[:40]}.py"
            + (f"; of those installed: {nearest(name, known)}" if known else ""),
        )
    if len(found) > 1:
        who = ", ".join(sorted(_owner(point) for _, point in found))
        raise UsageError(
            f"Two installed plug-ins are called {name!r} ({who}).",
            fix="remove one of the packages, or give one file with --plugin",
        )
    kind, point = found[0]
    plugin = read(_file(point))
    if (plugin.name, plugin.kind) != (name, kind):
        raise UsageError(
            f"The entry point {name!r} of {_owner(point)} names {point.value}, which is the "
            f"{plugin.kind} {plugin.name!r}.",
            why="an entry point is called like its module, in the group of what that offers",
            fix="correct the package, or give the file with --plugin",
        )
    return plugin


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "a package without a name"


def _file(point: EntryPoint) -> Path:
    """Return the file of an entry point's module; nothing is imported.

    Raises:
        UsageError: it names no module, or one that lies in no plain file.
    """
    spec: ModuleSpec | None = None
    places: list[str] | None = list(sys.path)
    full = ""
    for part in point.value.strip().split("."):
        full = f"{full}.{part}".lstrip(".")
        spec = PathFinder.find_spec(full, places) if places is not None else None
        if spec is None:
            break
        inner = spec.submodule_search_locations
        places = None if inner is None else list(inner)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(
            f"The module {point.value} of the plug-in {point.name!r} lies in no file of its own.",
            why="its package is broken, names something inside a module, or finds its files by a "
            "hook of its own",
            fix="give the file with --plugin",
        )
    return Path(spec.origin)
