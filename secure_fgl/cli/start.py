"""``secure-fgl site start``: keep a party's own process at work until its run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import verb


@verb
def start(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    kit: Annotated[
        Path,
        typer.Option(
            "--kit",
            metavar="KIT",
            readable=False,  # which it should not be
            help="NVFlare's kit of this site, another user's; that user may connect.",
        ),
    ],
    run: RunOption = None,
    socket: Annotated[
        Path | None,
        typer.Option("--socket", metavar="FILE", help="Where to listen; by default PARTY/socket."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Go on though this site was stopped.")
    ] = False,
) -> int:
    """Hold this party's keys, data, session and ledger in a process of its own, and answer.

    It runs in the foreground until the run is over here, and starts the session
    again when it crashes. It needs no network: NVFlare's process at this site
    hands envelopes over through a Unix socket, and holds no key and no data.
    Ctrl-C ends it so that the run can go on with the next start; site stop ends
    it so that nothing goes on without --again.

    Each run has a process and a socket of its own: its name follows that of --socket
    after a dot, and no job of another run finds it.

    NVFlare runs under a user of its own, or nothing is started: other sites and
    the server's operator can read what NVFlare's user can read. So nothing is
    started either while a process of NVFlare runs as this user. --socket names a
    place that both users reach: in a folder of this user's, mode 0750, whose group
    is NVFlare's.
    """
    import os

    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import UsageError
    from secure_fgl.transports.nvflare.checks.isolation import (
        check_kit,
        check_two_users,
        no_engine_here,
    )
    from secure_fgl.transports.nvflare.site.supervisor import start as keep_up

    engine = check_two_users(os.geteuid(), kit)
    check_kit(kit)
    no_engine_here()
    if socket is None:
        raise UsageError(
            "The kit belongs to another user, who cannot reach the party's folder.",
            why="NVFlare runs under a user of its own, which is as it should be",
            fix="--socket FILE in a folder of this user's, mode 0750, whose group is NVFlare's",
        )
    return keep_up(party, run=run, place=socket, users=[engine], again=again, say=say)
