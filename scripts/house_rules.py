"""The rules of this house that no general linter knows, checked on the syntax tree.

Run from the repository's root::

    python -m scripts.house_rules

It prints one line per finding and exits 1 if there is any. tests/test_repository.py runs the same
rules, and plants a violation of each to show that the rule can fail. Which floor may import which
is import-linter's business ([tool.importlinter] in pyproject.toml).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step
from scripts import layout
from scripts.source import Finding, Remark, Source
from scripts.words import field_words
from secure_fgl.plugins.plugin import NOUNS, Kind, needless

FLOORS = ("secure_fgl", "audits", "algorithms", "protocols", "crypto")
"""The five top-level packages, from the roof down."""

SOURCES = (*FLOORS, "scripts", "examples", "benchmarks")
"""Folders whose Python files obey the rules. Tests are exempt: they plant violations."""

MAX_FUNCTION_LINES = 60
"""House style asks for 40 (CONTRIBUTING.md); this is the hard stop."""

DOOR = ("protocols/wire/gateway.py", "protocols/wire/envelope.py")
"""Who may make an Envelope: the gateway, and the decoder in the class's own file."""

REGISTRIES = {
    "secure_fgl/catalogue.py": "finds the algorithms by folder",
    "algorithms/nn/__init__.py": "finds the models by folder",
    "audits/attacks/__init__.py": "finds the attacks by folder",
    "protocols/disclosures/names.py": "finds the disclosures by folder",
    "protocols/disclosures/registry.py": "finds what a disclosure's folder holds",
    "protocols/wire/roles.py": "finds the roles by file",
    "secure_fgl/data/_folder.py": "finds data sources and partitions by folder",
    "secure_fgl/sites/start.py": "loads the program that its child runs, as `python -m` would",
    "secure_fgl/plugins/loading.py": "runs the plug-ins that a configuration names, by digest",
}
"""Files that may import by a computed name. A new entry needs a reason and a reviewer."""

SESSIONS = ("protocols/sessions/", "protocols/disclosures/")
ENGINE = "protocols.sessions.engine.Session"
"""Where sessions and their parts lie, and what alone a session inherits from."""

DYNAMIC = {
    "__import__",
    "builtins.__import__",
    "eval",
    "exec",
    "importlib.__import__",
    "importlib.import_module",
    "importlib.util.spec_from_file_location",
    "runpy.run_module",
    "runpy.run_path",
}

PICKLES = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
"""Modules that write or read pickles, which run code when they are loaded."""

UNPICKLER = "secure_fgl/data/sources/_shared/planetoid.py"
"""Reads the published pickles of Planetoid, and knows six names."""

TEXT_OF_IDS = {
    *("endswith", "startswith", "find", "index", "removeprefix", "removesuffix", "replace"),
    *("partition", "rpartition", "split", "rsplit"),
}
_STEP = "|".join(Step)
PIECE_OF_AN_ID = re.compile(
    rf"\.({_STEP}|match)(\.\w*)*"  # ".up.", ".match.compare", ".open"
    rf"|(draw|heads|key|match|pair)\.({_STEP})?|refusal\.\w*"  # "pair.call", "refusal."
    rf"|\w+\.({_STEP}|match)\.({'|'.join(Disclosure)}|{_STEP})"  # "train.up.SUM"
)

GLOBAL_SEEDS = {
    "numpy.random.seed",
    "numpy.random.set_state",
    "random.seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.seed",
    "torch_geometric.seed_everything",
}


def nouns_only(source: Source) -> Iterator[Remark]:
    """An algorithm uses nothing of `protocols` but its nouns."""
    if not source.path.startswith("algorithms/"):
        return
    for line, name in source.mentions():
        noun = any(f"{name}.".startswith(f"{noun}.") for noun in NOUNS)
        if name.startswith("protocols.") and not noun:
            yield line, f"an algorithm may use {', '.join(NOUNS)} of protocols, not {name}"


def needed_imports_only(source: Source) -> Iterator[Remark]:
    """An algorithm imports modules that compute, as a plug-in does."""
    if source.path.startswith("algorithms/") and source.path not in REGISTRIES:
        for line, name in needless(Kind.ALGORITHM, source.tree):
            yield line, f"an algorithm has no use for {name}"


def one_door(source: Source) -> Iterator[Remark]:
    """Only the gateway, and the decoder beside the class, make an Envelope."""
    if source.path in DOOR or not source.path.startswith(FLOORS):
        return

    def is_envelope(node: ast.AST) -> bool:
        return (source.dotted(node) or "").rpartition(".")[2] == "Envelope"

    for node in source.nodes:
        suspects: list[ast.expr] = []
        if isinstance(node, ast.Call):
            suspects = [node.func]
            if (source.dotted(node.func) or "").endswith("__new__"):
                suspects = [*node.args, getattr(node.func, "value", node.func)]
        elif isinstance(node, ast.ClassDef):
            suspects = node.bases
        elif isinstance(node, ast.Assign):
            suspects = [node.value]
        if any(map(is_envelope, suspects)):
            yield (
                getattr(node, "lineno", 1),
                "only Gateway.release makes an Envelope (docs/adr/0001-one-door.md)",
            )


def no_dynamic_import(source: Source) -> Iterator[Remark]:
    """Imports are written down, except in the registries that find their members by folder."""
    if source.path not in REGISTRIES:
        for line, name in source.mentions():
            if name in DYNAMIC:
                yield line, f"{name}: only a folder registry imports by a computed name"


def no_pickle(source: Source) -> Iterator[Remark]:
    """Loading a pickle runs code that the file's writer chose, so one file alone does it."""
    for line, _, origin in source.imports:
        if origin.partition(".")[0] in PICKLES and source.path != UNPICKLER:
            yield line, f"{origin}: nothing here is pickled; use npz without objects, or JSON"
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in {"read_pickle", "to_pickle"}:
            yield node.lineno, f"{node.attr}: nothing here is pickled"
        if isinstance(node, ast.Call):
            given = {word.arg: word.value for word in node.keywords}
            if "allow_pickle" in given and not _is(given["allow_pickle"], False):
                yield node.lineno, "allow_pickle must be the literal False"
            name = source.dotted(node.func)
            if name == "torch.load" and not _is(given.get("weights_only"), True):
                yield node.lineno, "torch.load needs the literal weights_only=True"
            if name == "torch.save":
                yield node.lineno, "torch.save writes a pickle; use numpy.savez"


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def no_global_seed(source: Source) -> Iterator[Remark]:
    """Randomness is an argument: a global seed couples parts that should not know each other."""
    for line, name in source.mentions():
        if name in GLOBAL_SEEDS:
            yield line, f"{name}: pass a generator instead of seeding the whole process"


def ids_are_opaque(source: Source) -> Iterator[Remark]:
    """Nobody reads or writes the text of an item's id; what an item is for, its part and step say.

    Whether a name holds an id is guessed by how it is called, and by what a text looks like.
    """
    if source.path == "protocols/plan/steps.py":
        return
    said = "an item's part and step say what it is for, not its id (protocols/plan/steps.py)"
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in TEXT_OF_IDS and _is_id(node.value):
            yield node.lineno, f".{node.attr}: {said}"
        elif isinstance(node, ast.Compare):
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, (ast.In, ast.NotIn)) and _is_id(right):
                    yield node.lineno, f"in: {said}"
        elif isinstance(node, ast.Constant) and PIECE_OF_AN_ID.fullmatch(str(node.value)):
            yield node.lineno, f"{node.value!r}: {said}"


def _is_id(node: ast.expr) -> bool:
    """Tell whether an expression is called like the id of an item."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "item"
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("id", "item")


def small_enough(source: Source) -> Iterator[Remark]:
    """A function fits on the screen; its docstring does not count."""
    for node in source.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = _code_lines(node)
            if length > MAX_FUNCTION_LINES:
                yield (
                    node.lineno,
                    f"{node.name} has {length} lines; {MAX_FUNCTION_LINES} is the most",
                )


def _code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return length


def one_step_from_the_engine(source: Source) -> Iterator[Remark]:
    """A session inherits from the engine alone: what several roles share is a part.

    A class that inherits from the engine is called a session, and nothing inherits from a session,
    so that the rule holds across files.
    """
    if not source.path.startswith(SESSIONS):
        return
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for base in map(source.dotted, node.bases):
            last = (base or "").rpartition(".")[2]
            if base == ENGINE and not node.name.endswith("Session"):
                yield node.lineno, f"{node.name} is a session, so its name ends like that"
            elif last.endswith("Session") and base != ENGINE:
                yield node.lineno, f"{node.name} inherits from {last}: make a part of what it needs"


RULES: tuple[Callable[[Source], Iterator[Remark]], ...] = (
    nouns_only,
    needed_imports_only,
    one_door,
    no_dynamic_import,
    no_pickle,
    no_global_seed,
    ids_are_opaque,
    small_enough,
    one_step_from_the_engine,
    field_words,
)


def inspect(path: str, text: str) -> list[Finding]:
    """Return what one file breaks; `path` is relative to the root, with forward slashes.

    Raises:
        SyntaxError: The text is not Python.
    """
    source = Source(path, text)
    # A set: a chain of attributes is met once for each of its links.
    found = {Finding(path, line, remark) for rule in RULES for line, remark in rule(source)}
    return sorted(found, key=lambda finding: (finding.line, finding.remark))


def inspect_all(root: Path) -> list[Finding]:
    """Return what the Python files under the source folders of `root` break."""
    files = layout.read(root, SOURCES)
    each = [finding for path, text in files.items() for finding in inspect(path, text)]
    return [*each, *layout.findings(layout.read(root, FLOORS))]


def main() -> int:
    """Print the findings; return the exit status."""
    findings = inspect_all(Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
