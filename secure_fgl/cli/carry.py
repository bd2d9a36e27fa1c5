"""``secure-fgl site carry``: the carrier alone, where it has a user of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import verb


@verb
def carry(
    carrier: Annotated[
        Path, typer.Argument(metavar="CARRIER", help="PARTY/carrier, or that user's copy of it.")
    ],
    socket: Annotated[Path, typer.Option("--socket", metavar="FILE", help="As site start has it.")],
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="The run's name.")],
) -> int:
    """Keep a party's connection to the broker, and start it again when it crashes.

    site start does this by itself, under the party's user. Run it apart where
    the carrier has a user of its own. It needs no file but those in CARRIER.
    """
    from secure_fgl.cli._shared.output import say
    from secure_fgl.sites.start import carry as keep_up

    return keep_up(carrier, run=run, socket_at=socket, say=say)
