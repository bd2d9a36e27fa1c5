"""``secure-fgl list``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from secure_fgl.data.sources._shared.files import Shape

Rows = Iterator[tuple[str, str]]


def _algorithms() -> Rows:
    from secure_fgl.catalogue import algorithm_names, algorithm_summary

    for name in algorithm_names():
        yield name, algorithm_summary(name)


def _datasets() -> Rows:
    for name, shape in _shapes().items():
        label = ", SYNTHETIC DATA" if shape.synthetic else ""
        yield name, f"{shape.task} task, {', '.join(_sizes(shape))}{label}"


def _shapes() -> dict[str, Shape]:
    from secure_fgl.data import dataset_names, published_shape

    return {name: published_shape(name) for name in dataset_names()}


def _sizes(shape: Shape) -> list[str]:
    if shape.task == "rating":
        return [
            f"{shape.records} ratings from {shape.lowest:g} to {shape.highest:g}",
            f"{shape.users} users",
            f"{shape.items} items",
        ]
    answers = "classes" if not shape.multilabel else "label" if shape.classes == 1 else "labels"
    return [
        f"{shape.records} {shape.task}s",
        f"{shape.features} features",
        f"{shape.classes} {answers}",
    ]


def _partitions() -> Rows:
    from secure_fgl.data import partitions
    from secure_fgl.data._folder import members

    for name, module in sorted(members(partitions).items()):
        yield name, f"{', '.join(module.KINDS)}: {_first_line(module.__doc__)}"


def _policies() -> Rows:
    from protocols.policy.guard import describe
    from protocols.policy.policy import PRESETS

    for name, policy in PRESETS.items():
        flag = "UNSAFE: " if policy.unsafe else ""
        rules = (
            f"{disclosure}: {' > '.join(describe(guard) for guard in chain)}"
            for disclosure, chain in policy.rules.items()
        )
        yield name, f"{flag}{'; '.join(rules)}; at least {policy.smallest_cohort} clients"


def _models() -> Rows:
    from algorithms.nn import model, model_names
    from algorithms.tasks import Kind
    from secure_fgl.defaults import defaults, said

    for task in get_args(Kind):
        for name in model_names(task):
            does = _first_line(model(name, task).__doc__)
            yield (
                name,
                f"{task} task: {does.rstrip('.')}; trained with {said(defaults(task, name))}",
            )


def _plugins() -> Rows:
    from secure_fgl.plugins.in_use import installed_names

    for name, kind, module in installed_names():
        yield name, f"{kind}, installed as {module}; runs nowhere until it is named"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(":")


def _print_datasets() -> None:
    """Print the data sets, a table for each kind of task; names and sizes fit 80 columns."""
    from secure_fgl.cli._shared.output import cell, console, grid, say

    heads = {
        "node": ("Node classification", [">Nodes", ">Features", ">Classes"]),
        "graph": ("Graph classification", [">Graphs", ">Features", ">Classes"]),
        "rating": ("Ratings", [">Ratings", ">Users", ">Items", ">From", ">To"]),
    }
    shapes, out = _shapes(), console(stderr=False)
    for task, (title, columns) in heads.items():
        table = grid(["Name", *columns], title=title)
        for name, shape in shapes.items():
            if shape.task == task:
                label = " (SYNTHETIC DATA)" if shape.synthetic else ""
                table.add_row(cell(f"{name}{label}"), *(cell(size) for size in _columns(shape)))
        out.print(table)
    say(
        "Names that begin with pyg/ are downloaded by PyG when they are first used; its other sets "
        "need their sizes as data.options. *: yes-or-no labels instead of classes. "
        "For data of your own: secure-fgl init DIR.",
        stderr=False,
    )


def _columns(shape: Shape) -> list[str]:
    if shape.task == "rating":
        counts, scale = (shape.records, shape.users, shape.items), (shape.lowest, shape.highest)
        return [*(f"{count:,}" for count in counts), *(f"{end:g}" for end in scale)]
    mark = "*" if shape.multilabel else ""
    return [f"{shape.records:,}", f"{shape.features:,}", f"{mark}{shape.classes}"]


SUBJECTS = {
    "algorithms": _algorithms,
    "datasets": _datasets,
    "partitions": _partitions,
    "policies": _policies,
    "models": _models,
    "plugins": _plugins,
}


@verb
def catalogue(
    subject: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(SUBJECTS)}.")],
    format: FormatOption = Format.table,
) -> int:
    """List what there is to choose from."""
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.cli._shared.output import print_json, print_pairs

    chosen = SUBJECTS[choose("list", subject, SUBJECTS)]
    if chosen is _datasets and format is Format.table:
        _print_datasets()
        return 0
    rows = list(chosen())
    if format is Format.json:
        print_json([{"name": name, "summary": summary} for name, summary in rows])
    else:
        print_pairs(rows)
    return 0
