"""``secure-fgl site stop``: nothing more leaves this site, and its ledger is signed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def stop(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    run: RunOption = None,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", min=0, help="How long to wait.")
    ] = 600.0,
    format: FormatOption = Format.table,
) -> int:
    """End this party's session between two exchanges and sign the head of its
    ledger.

    Without --run all runs of this party are stopped. Nothing that is queued or
    being computed leaves. The others see a site that left, and go on without it
    where they can. site start goes on only with --again.
    """
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.sites.stopping import stop as end

    stopped = end(party, run=run, seconds=patience)
    if format is Format.json:
        print_json({"party": str(party), "stopped": stopped})
        return 0
    told = ", ".join(stopped) or "nothing: there is no run here"
    say(f"Stopped {told}. Nothing leaves until site start is run as before, with --again")
    return 0
