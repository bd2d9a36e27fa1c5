"""``secure-fgl site hand-over``: one party's side of a run, as a file for whoever audits all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def hand_over(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The party's folder, with identity.json.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    run: RunOption = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Hand on the figures of all attacks that ran at this site."),
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Write this party's side of a run as a file: charter, plan, its ledger and its head.

    No key, no kept state, no captured message, no model and no path goes in.
    Ledgers say which values were clipped and why a request was refused: give
    the file only to who may know. The same side gives the same bytes.

    Figures of attacks at this site (audit attack PARTY) go in as far as the
    policy's audit: {share: [A04]} names them; the others stay, without --yes.
    This party's keys sign them.

    Exits 5 if this side's own evidence is broken; the file is written and says so.
    """
    from secure_fgl.charters.party import load_identity
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.cli.bundle import final_words
    from secure_fgl.errors import BROKEN, OK
    from secure_fgl.store.sides.hand_overs import handed_on, write_hand_over

    told = handed_on(party, lambda: load_identity(party), run=run, yes=yes)
    path, outcome = write_hand_over(party, out, run=run, figures=told.data)
    if format is Format.json:
        failed = outcome.failed.name if outcome.failed is not None else None
        figures = {"figures": list(told.ids), "kept": list(told.kept)}
        print_json({"file": str(path), "verdict": outcome.verdict, "failed": failed, **figures})
    else:
        typer.echo(str(path))
    if told.ids:
        say(f"Figures of these attacks are in it, signed: {', '.join(told.ids)}.")
    if told.kept:
        say(f"Figures of these attacks stay here: {', '.join(told.kept)} (--yes hands them on).")
    for line in final_words(outcome):
        say(line)
    return OK if outcome.ok else BROKEN
