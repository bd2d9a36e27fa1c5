"""Write constraints.txt anew: the exact versions of everything that Secure-FGL needs, as installed.

Run from the repository's root, in the environment whose versions are to become the pins::

    python -m scripts.freeze            # writes constraints.txt
    python -m scripts.freeze --check    # writes nothing; exits 1 and names what differs

The closure starts from pyproject.toml (dependencies and extras) and follows what each installed
distribution says it requires here, so whatever else the environment holds is left out. Install
`.[test,docs,mlflow,tensorboard]` first, with a CPU build of torch: others require libraries that
would then be pinned for everybody.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OWN = "secure-fgl"
HEAD = """\
# The exact versions that tests and benchmarks run with: Secure-FGL's closure, extras included.
# Use:    pip install -c constraints.txt -e '.[test]'    (`make setup` does it)
# Renew:  python -m scripts.freeze
"""


def declared(root: Path = ROOT) -> list[Requirement]:
    """Return what pyproject.toml asks for, extras included."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    found = [Requirement(line) for group in (project["dependencies"], *extras) for line in group]
    return [wanted for wanted in found if wanted.name != OWN]  # an extra of ours may name another


def closure(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Return canonical name and installed version of everything that `requirements` bring in.

    A local label such as ``+cpu`` is dropped, because it names a build and not a version.

    Raises:
        RuntimeError: Something required is not installed.
    """
    pins: dict[str, str] = {}
    waiting = list(requirements)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, extras) in seen or not _applies(wanted, {""}):
            continue
        seen.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError as error:
            raise RuntimeError(f"{name} is required but not installed: run `make setup`") from error
        pins[name] = found.version.partition("+")[0]
        inner = [Requirement(line) for line in found.requires or ()]
        # Whether a marker such as `extra == "x"` holds depends on who asked, so judge it here.
        waiting += [_bare(one) for one in inner if _applies(one, extras | {""})]
    return pins


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def _bare(requirement: Requirement) -> Requirement:
    requirement.marker = None
    return requirement


def pinned(text: str) -> dict[str, str]:
    """Read constraints: canonical name and version of each `name==version` line."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): version for name, version in pairs}


def main(arguments: list[str]) -> int:
    """Write constraints.txt, or compare it with what is installed; return the exit status."""
    file, pins = ROOT / "constraints.txt", closure(declared())
    if arguments != ["--check"]:
        lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
        file.write_text(HEAD + "".join(lines), "utf-8")
        return 0
    now = pinned(file.read_text("utf-8"))
    different = sorted(name for name in pins | now if pins.get(name) != now.get(name))
    for name in different:
        print(f"{name}: pinned {now.get(name, 'not')}, installed {pins.get(name, 'not needed')}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
