"""``secure-fgl site start``: keep a party's processes at work until its run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import verb

SocketOption = Annotated[
    Path | None,
    typer.Option("--socket", metavar="FILE", help="Where both meet; by default PARTY/socket."),
]


@verb
def start(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    run: RunOption = None,
    carrier_user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="The carrier is this user's: see site carry."),
    ] = None,
    socket: SocketOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Go on though this site was stopped.")
    ] = False,
) -> int:
    """Answer for this party until its run is over here, and start again what
    crashes.

    Two processes work. The party's holds keys, data, session and ledger, and
    the kernel lets it open no connection. The carrier's has the connection to
    the broker, and the kernel lets it open no file of the party but its own
    key. At the aggregator, this is what runs the rounds.

    Ctrl-C ends both so that the run goes on with the next start; site stop ends
    them so that nothing goes on without --again.

    With --carrier-user that user runs the carrier (site carry), and --socket
    names a place that both reach: in a folder of this user's, mode 0750, with
    that user's group.
    """
    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import UsageError
    from secure_fgl.sites.start import start as keep_up

    if (carrier_user is None) != (socket is None):
        raise UsageError(
            "--carrier-user and --socket belong together.",
            why="another user's carrier cannot reach the party's folder; this user's needs none",
        )
    users = [_number(carrier_user)] if carrier_user is not None else []
    return keep_up(party, run=run, socket_at=socket, users=users, again=again, say=say)


def _number(user: str) -> int:
    import pwd

    from secure_fgl.errors import UsageError

    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise UsageError(f"There is no user {user[:40]!r} here.") from error
