"""What an algorithm's or a model's file may reach: numbers, its own objects and the nouns.

An algorithm computes. It opens nothing, imports nothing from the system, and does not climb from
the objects that it holds to the interpreter behind them. The rule reads source text, so it binds
whoever wants to be bound and makes a bypass visible in review; what it reads is:

* imports, from a list of packages, and of each library from a list of its modules;
* a module stands for what it offers and is nothing to hand on: ``x = numpy`` is refused, and so is
  another module as its attribute (``dataclasses.sys``);
* what opens files, starts code or loads libraries is refused by name, on whatever object;
* private and double-underscore attributes but the few that a class needs, frames, and names that
  are computed (``getattr`` with anything but a literal).

The house holds its own folder `algorithms/` to it (scripts/house_rules.py), and a plug-in is held
to it when it is read: an early warning to its author, no boundary (docs/adr/0033-plug-ins.md).

The kernel holds answers besides, where they run in a process of their own
(docs/adr/0023-isolated-answers.md). What runs when the file is imported, its `init` and `round`,
which run beside a client's keys, this rule and its reader hold alone.
"""

from __future__ import annotations

import abc
import ast
import collections
import dataclasses
import difflib
import functools
import hashlib
import importlib.util
import itertools
import math
import re
import sys
import typing
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from secure_fgl.plugins.source import Remark, Source

__all__ = ["NOUNS", "PICKLES", "beyond_nouns", "remarks"]

NOUNS = ("protocols.messages", "protocols.rounds", "protocols.forms")
"""All that an algorithm may know of `protocols` (docs/adr/0001-one-door.md)."""

PICKLES = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
"""Modules that write or read pickles, which run code when they are loaded."""

STANDARD: dict[str, ModuleType] = {
    module.__name__: module
    for module in (
        *(abc, collections, collections.abc, dataclasses, difflib, functools, hashlib),
        *(itertools, math, typing, warnings),
    )
}
"""Modules of the standard library that an algorithm may use, for their public names."""

MODULES = {
    "numpy",
    "numpy.fft",
    "numpy.linalg",
    "numpy.random",
    "numpy.typing",
    "opacus",
    "opacus.grad_sample",
    "opacus.grad_sample.functorch",
    "scipy",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.sparse.csgraph",
    "scipy.sparse.linalg",
    "scipy.special",
    "scipy.stats",
    "torch",
    "torch.autograd",
    "torch.fft",
    "torch.func",
    "torch.linalg",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.optim",
    "torch.optim.adam",
    "torch.optim.adamw",
    "torch.optim.lr_scheduler",
    "torch.optim.sgd",
    "torch.special",
    "torch_geometric",
    "torch_geometric.nn",
    "torch_geometric.nn.conv",
    "torch_geometric.nn.conv.gcn_conv",
    "torch_geometric.utils",
}
"""Modules of libraries that an algorithm may use: they compute."""

LIBRARIES = {name.partition(".")[0] for name in MODULES}

HOUSE = {"__future__", "algorithms", "protocols"}  # of `protocols` see `beyond_nouns`

BUILTINS = {
    *("breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals", "help", "input"),
    *("locals", "memoryview", "open", "print", "quit", "setattr", "vars"),
}
"""Builtins that open, run, climb or talk."""

COMPUTED = {"getattr", "hasattr"}
"""Builtins that take an attribute's name, which must be a literal."""

OPENERS = {
    *("ByteStorage", "DataSource", "LowLevelCallable", "TypedStorage", "UntypedStorage"),
    *("as_ctypes", "compile", "cpp_extension", "ctypeslib", "data_ptr", "datasets"),
    *("download_url", "dump", "dumps", "f2py", "file_digest", "from_blob", "from_dlpack"),
    *("from_file", "fromfile", "fromregex", "genfromtxt", "get_type_hints", "hub", "jit"),
    *("lib", "library", "load", "load_library", "load_npz", "loads", "loadtxt", "loadmat"),
    *("make_dataclass", "memmap", "package", "safe_eval", "save", "save_npz", "savemat"),
    *("savetxt", "savez", "savez_compressed", "share_memory_", "showwarning", "storage"),
    *("tofile", "untyped_storage", "ForwardRef", "set_warn_always", "ctypes"),
}
"""Names that open files, load libraries, run text or hand out memory, on whatever object."""

CLIMBERS = {
    *("ag_await", "ag_code", "ag_frame", "co_consts", "co_names", "cr_await", "cr_code"),
    *("cr_frame", "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "f_trace"),
    *("gi_code", "gi_frame", "gi_yieldfrom", "mro", "tb_frame", "tb_next"),
}
"""Attributes that lead from an object to the interpreter behind it."""

DUNDERS = {
    *("__all__", "__call__", "__class_getitem__", "__copy__", "__deepcopy__", "__doc__"),
    *("__enter__", "__eq__", "__exit__", "__getitem__", "__getstate__", "__hash__", "__init__"),
    *("__iter__", "__len__", "__name__", "__new__", "__next__", "__post_init__", "__qualname__"),
    *("__reduce__", "__reduce_ex__", "__repr__", "__slots__", "__str__"),
}
"""The double-underscore names that a class needs."""

WORDS = {"array", "copy", "random", "site", "special", "stats", "symbol", "types", "typing"}
"""Names of the standard library that are plain words for attributes of other things."""

NATIVE = {"torch.classes", "torch.ops"}  # whatever library is loaded answers under these

_DUNDER = re.compile(r"__\w+__")
_OF_TEXT = re.compile(r"\{[^{}]*__\w+__|^__\w+__$")  # "{0.__globals__}".format, or a name to get


def beyond_nouns(source: Source) -> Iterator[Remark]:
    """Yield what an algorithm's file uses of `protocols` but its nouns."""
    for line, name in source.mentions():
        if name.startswith("protocols.") and not _is_noun(name):
            yield line, f"an algorithm may use {' and '.join(NOUNS)} of protocols, not {name}"


def _is_noun(name: str) -> bool:
    return any(name == noun or name.startswith(noun + ".") for noun in NOUNS)


def remarks(source: Source) -> Iterator[Remark]:
    """Yield what an algorithm's file reaches that it may not."""
    yield from _imports(source)
    attributes = {id(n.value) for n in source.nodes if isinstance(n, ast.Attribute)}
    called = {id(n.func) for n in source.nodes if isinstance(n, ast.Call)}
    for node in source.nodes:
        if isinstance(node, ast.Attribute):
            yield from _attribute(node.attr, node, own=_is_own(node.value))
        elif isinstance(node, ast.MatchClass):
            for name in node.kwd_attrs:  # `case Kind(name=value)` reads an attribute
                yield from _attribute(name, node, own=False)
        elif isinstance(node, ast.Name):
            yield from _name(node, called=id(node) in called)
        elif isinstance(node, ast.Call):
            yield from _computed(source, node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _text(node.lineno, node.value)
        if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in attributes:
            found = source.dotted(node)
            if found in MODULES | STANDARD.keys() and source.imported(node):
                yield node.lineno, f"{found}: a module is nothing to hand on; name what it offers"
    for line, name in source.mentions():
        yield from ((line, remark) for remark in _chain(name))


def _is_own(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls"}


def _imports(source: Source) -> Iterator[Remark]:
    known = sorted({name for name in STANDARD if "." not in name} | LIBRARIES | HOUSE)
    for line, local, origin in source.imports:
        root = origin.partition(".")[0]
        if root not in known:
            yield line, f"an algorithm has no use for {origin}; known: {', '.join(known)}"
        if local == "*":
            yield line, f"{origin}: say which names you take"


def _attribute(name: str, node: ast.expr | ast.pattern, *, own: bool) -> Iterator[Remark]:
    if _DUNDER.fullmatch(name):
        if name not in DUNDERS:
            yield node.lineno, f"{name} leads to the interpreter behind an object"
    elif name.startswith("_") and not own:
        yield node.lineno, f"{name} is private to another object"
    if name in CLIMBERS:
        yield node.lineno, f"{name} leads to the interpreter behind an object"
    if name in OPENERS:
        yield node.lineno, f"{name}: an algorithm opens no file, library or memory, runs no text"
    if name in sys.stdlib_module_names and name not in WORDS | STANDARD.keys():
        yield node.lineno, f"{name}: an algorithm has no use for a system module"


def _name(node: ast.Name, *, called: bool) -> Iterator[Remark]:
    if node.id in BUILTINS:
        yield node.lineno, f"{node.id}: an algorithm opens, runs and prints nothing"
    if node.id in COMPUTED and not called:
        yield node.lineno, f"{node.id} is called with a literal name, not handed on"
    if _DUNDER.fullmatch(node.id) and node.id not in DUNDERS:
        yield node.lineno, f"{node.id} leads to the interpreter"


def _computed(source: Source, call: ast.Call) -> Iterator[Remark]:
    name = source.dotted(call.func)
    if name not in COMPUTED:
        return
    wanted = call.args[1] if len(call.args) > 1 else None
    if not isinstance(wanted, ast.Constant) or not isinstance(wanted.value, str):
        yield call.lineno, f"{name}: an attribute's name is written down, not computed"
        return
    yield from _attribute(wanted.value, call, own=_is_own(call.args[0]))


def _text(line: int, text: str) -> Iterator[Remark]:
    if _OF_TEXT.search(text) and text not in DUNDERS:
        yield line, "a text that names double-underscore attributes; write what you mean"


def _chain(name: str) -> Iterator[str]:
    """Yield what is wrong with a dotted name that begins at a module."""
    parts = name.split(".")
    base = parts[0]
    if base not in LIBRARIES and base not in STANDARD:
        return
    for part in parts[1:]:
        whole = f"{base}.{part}"
        if base in STANDARD:
            if whole not in STANDARD and part not in _public(base):
                yield f"{whole}: not among what {base} offers to others"
        elif whole in NATIVE or (whole not in MODULES and part in _submodules(base)):
            yield f"{whole}: an algorithm uses only modules that compute ({__name__})"
        elif whole not in MODULES and (part in LIBRARIES or part == "np"):
            yield f"{whole}: a module is reached by its own import"
        if part in OPENERS:  # imported by name: there is no attribute to see
            yield f"{whole}: an algorithm opens no file, library or memory, runs no text"
        if whole not in MODULES and whole not in STANDARD:
            return  # a class or a function: what follows is an attribute like any other
        base = whole


def _public(module: str) -> set[str]:
    found = STANDARD[module]
    names = getattr(found, "__all__", None) or [n for n in vars(found) if n[0] != "_"]
    return {n for n in names if not isinstance(vars(found).get(n), ModuleType)}


@cache
def _submodules(module: str) -> frozenset[str]:
    """Return the modules that lie in a library's folder; it is not imported."""
    library, *parts = module.split(".")
    spec = importlib.util.find_spec(library)
    places = (spec.submodule_search_locations or []) if spec is not None else []
    files = [file for place in places for file in Path(place, *parts).glob("*")]
    return frozenset(file.name.partition(".")[0] for file in files if file.is_dir() or _code(file))


def _code(file: Path) -> bool:
    return file.suffix in {".py", ".pyi", ".so"}
