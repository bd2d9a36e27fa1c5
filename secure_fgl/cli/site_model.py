"""``secure-fgl site model``: the model that this party has after a run, as one file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


class Which(StrEnum):
    """Of which round."""

    best = "best"
    final = "final"


@verb
def site_model(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The party's folder, with identity.json.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The npz to write.")],
    run: RunOption = None,
    which: Annotated[
        Which, typer.Option(help="The best one on validation, or the one after the last round.")
    ] = Which.best,
    audited: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="The gathered run that attacks were run on."),
    ] = None,
    released: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The statement of audit release, which must fit."),
    ] = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            metavar="KEYS", help="Who may sign it: a JSON file {name: 64 hex digits of a key}."
        ),
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Write the model that a client was given or trained, or that the aggregator added up.

    FILE is one npz, without pickles: weights, and the task's and the model's
    description. load_model of secure_fgl opens it, and so do secure-fgl predict
    and evaluate. This side's evidence is verified first.

    A model tells something of the records that trained it: see
    secure-fgl audit attack.

    Where the policy says release: requires, each of its attacks must be answered
    in the run (--audited), or waived by every client (secure-fgl site waive).
    With --released the statement must besides be about this run and this ledger,
    and signed with one of KEYS.

    Exits 2 for a party that has no model (key authority, witness, ...) or where
    the policy holds it back, 5 if the evidence is broken.
    """
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.cli.bundle import load_trust
    from secure_fgl.errors import UsageError
    from secure_fgl.model_file import write_model
    from secure_fgl.store.sides.own_model import own_model

    if out.suffix != ".npz":
        raise UsageError(
            f"--out {out}: a model is written as .npz.",
            why="a .pt file is a pickle, which runs code when it is opened",
            fix="name a file like model.npz",
        )
    if (released is None) is not (trust is None):
        raise UsageError("--released and --trust belong together.", fix="give both, or neither")
    last = which is Which.final
    stated = (released, load_trust(trust)) if released is not None and trust is not None else None
    trained = own_model(party, run=run, last=last, audited=audited, statement=stated)
    path = write_model(trained, out)
    facts: dict[str, Any] = {"file": str(path)}
    facts |= {name: trained.facts.get(name) for name in ("run", "client", "weights_sha256")}
    if format is Format.json:
        print_json(facts)
        return 0
    typer.echo(str(path))
    say(f"Weights {facts['weights_sha256']}. {trained.facts['tells']}")
    return 0
