"""``secure-fgl init``: the files that a pilot starts from."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


class TaskKind(StrEnum):
    """What is learnt."""

    node = "node"
    graph = "graph"
    rating = "rating"


@verb
def init(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A new or empty folder for the pilot.")
    ] = None,
    task: Annotated[
        TaskKind,
        typer.Option("--task", help="Classes of nodes, labels of graphs, or ratings."),
    ] = TaskKind.node,
    pilot: Annotated[
        bool,
        typer.Option("--pilot", help="Between organisations: who takes part, and the steps."),
    ] = False,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="An example instead, such as banks, into DIR/examples."),
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Write a commented configuration, policy and data description for one's own data.

    With --pilot also consortium.yaml (organisations, roles, names, the server), and
    STEPS.md, what each of them does in which order. Four organisations with data are
    the fewest, or three where policy.yaml says minimum_cohort: 2.

    The plan of what would leave each site can be made at once, before any data is there.

    With --example the configuration of that example, and the policy that it names,
    are written into examples/ here or in DIR.
    """
    from secure_fgl.charters.charter import THREE
    from secure_fgl.cli._shared.output import print_json, print_pairs, say
    from secure_fgl.data.own._pilot import pilot_files
    from secure_fgl.errors import UsageError

    if example is not None:
        return _copy_example(example, folder or Path(), format)
    if folder is None:
        raise UsageError("init needs a folder.", fix="secure-fgl init pilot")
    _check_empty(folder)
    texts = pilot_files(folder, task.value, organisations=pilot)
    for name, text in texts.items():
        _write(folder / name, text)
    if format is Format.json:
        print_json({"folder": str(folder), "files": [str(folder / name) for name in texts]})
        return 0
    purposes = [(str(folder / name), _PURPOSE[name]) for name in texts]
    print_pairs(purposes, stderr=True, wrap=False)
    if pilot:
        say(
            "A run takes four organisations with data or more, or three under a policy that says "
            f"minimum_cohort: 2: {THREE}."
        )
    say(
        f"Next: edit {folder / 'data' / 'spec.yaml'}, then secure-fgl plan {folder / 'config.yaml'}"
    )
    return 0


_PURPOSE = {
    "config.yaml": "what is trained, and how",
    "policy.yaml": "what may leave a site, and in which form",
    "data/spec.yaml": "what all sites agree on about their data",
    "data/README.txt": "how the data are laid out",
    "consortium.yaml": "who takes part, and where the server is",
    "STEPS.md": "what each party does, in which order",
}


def _examples() -> Path:
    """Return where the examples lie: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"


def _copy_example(name: str, folder: Path, format: Format) -> int:
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.cli._shared.output import print_json, say

    there = {file.stem: file for file in _examples().glob("*.yaml")}
    names = [known for known in there if not known.endswith("_policy")]
    text = there[choose("example", name, names)].read_text("utf-8")
    policy = re.search(r"^policy: examples/(\w+)\.yaml", text, re.MULTILINE)
    stems = [name, *(policy.groups() if policy else ())]
    made = [folder / "examples" / f"{stem}.yaml" for stem in stems]
    for path in made:
        _write(path, there[path.stem].read_text("utf-8"))
    if format is Format.json:
        print_json({"folder": str(folder), "files": [str(path) for path in made]})
    else:
        say(f"Next: secure-fgl run {made[0]}")
    return 0


def _check_empty(folder: Path) -> None:
    from secure_fgl.errors import UsageError

    try:
        taken = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be listed ({error.strerror}).") from error
    if taken:
        raise UsageError(
            f"{folder} is there already, and not an empty folder.",
            why="nothing that somebody wrote is replaced",
            fix="give a new folder",
        )


def _write(path: Path, text: str) -> None:
    from secure_fgl.errors import UsageError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # x: never over somebody's file
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"The file {path} cannot be written ({error.strerror}).", fix="choose another folder"
        ) from error
