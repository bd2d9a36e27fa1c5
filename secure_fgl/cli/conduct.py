"""``secure-fgl conduct``: see a run through, at the coordinating office."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

_TIME = re.compile(r"([1-9]\d{0,5})(s|m|h)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@verb
def conduct(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The aggregator's folder, with its charter.")
    ],
    kit: Annotated[
        Path, typer.Option("--kit", metavar="KIT", help="NVFlare's kit of the administrator.")
    ],
    run: RunOption = None,
    deadline: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long one exchange may take: 90s, 10m, 2h."),
    ] = "10m",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that has begun.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Hand the run's job in, watch it, hand it in again where NVFlare ended it, and end it.

    It ends when the run is over (exit 0), when a party refused (exit 2), or when
    three jobs in a row got nowhere (exit 1), and frees the server's slot. On
    Ctrl-C the job goes on without being watched; --resume watches it again.
    """
    from secure_fgl.cli._shared.output import print_json, print_pairs, say
    from secure_fgl.errors import INTERNAL, OK, USAGE
    from secure_fgl.transports.nvflare.office.conducting import Ending, Settings, see_through
    from secure_fgl.transports.nvflare.party import PartyKit

    settings = Settings(deadline=_seconds(deadline), resume=resume, tell=say)
    office = PartyKit.load(party, run)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # NVFlare prints
            ending, why = see_through(office, kit, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The job goes on unwatched; watch it again with --resume") from None
    facts = {"run": office.charter.run, "ended": str(ending), "why": why}
    if format is Format.json:
        print_json(facts)
    else:
        print_pairs(list(facts.items()), wrap=False)
    return {Ending.OVER: OK, Ending.REFUSED: USAGE, Ending.HOPELESS: INTERNAL}[ending]


def _seconds(text: str) -> float:
    from secure_fgl.errors import UsageError

    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"--deadline {text[:20]} is no time.", fix="write 90s, 10m or 2h")
    return float(found[1]) * _UNITS[found[2]]
