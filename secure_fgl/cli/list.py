"""``secure-fgl list``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from secure_fgl.cli._verb import Format, FormatOption, verb

Rows = Iterator[tuple[str, str]]


def _algorithms() -> Rows:
    from secure_fgl.catalogue import algorithm_names, algorithm_summary

    for name in algorithm_names():
        yield name, algorithm_summary(name)


def _datasets() -> Rows:
    from secure_fgl.data import dataset_names, spec_of

    for name in dataset_names():
        spec = spec_of(name, clients=1)
        label = ", SYNTHETIC DATA" if spec.synthetic else ""
        yield name, f"{spec.task} task, {spec.features} features, {spec.classes} classes{label}"


def _partitions() -> Rows:
    from secure_fgl.data import partitions
    from secure_fgl.data._folder import members

    for name, module in sorted(members(partitions).items()):
        yield name, _first_line(module.__doc__)


def _policies() -> Rows:
    from protocols.guards import describe
    from protocols.policy import PRESETS

    for name, policy in PRESETS.items():
        flag = "UNSAFE: " if policy.unsafe else ""
        rules = (
            f"{disclosure}: {' > '.join(describe(guard) for guard in chain)}"
            for disclosure, chain in policy.rules.items()
        )
        yield name, f"{flag}{'; '.join(rules)}; at least {policy.smallest_cohort} clients"


def _models() -> Rows:
    from algorithms.nn import model, model_names

    for name in model_names():
        yield name, _first_line(model(name).__doc__)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(":")


SUBJECTS = {
    "algorithms": _algorithms,
    "datasets": _datasets,
    "partitions": _partitions,
    "policies": _policies,
    "models": _models,
}


@verb
def catalogue(
    subject: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(SUBJECTS)}.")],
    format: FormatOption = Format.table,
) -> int:
    """List what there is to choose from."""
    from secure_fgl.cli._inputs import choose
    from secure_fgl.cli._output import print_json, print_pairs

    rows = list(SUBJECTS[choose("list", subject, SUBJECTS)]())
    if format is Format.json:
        print_json([{"name": name, "summary": summary} for name, summary in rows])
    else:
        print_pairs(rows)
    return 0
