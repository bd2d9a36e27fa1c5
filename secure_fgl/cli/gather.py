"""``secure-fgl audit gather``: the sides of all parties, put into one run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def gather(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="What site hand-over wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    format: FormatOption = Format.table,
) -> int:
    """Put what all parties handed over into one run folder, and name who is missing.

    Two files that contradict each other are refused with exit code 5: another
    charter, plan, policy, roster or configuration, or two stories of one
    party, or figures of a site's attacks that it did not sign, of another run or
    of another head of its ledger. Nothing else is verified here: audit verify RUN
    does that, and fails at roster while somebody is missing.

    Where sites handed on figures of their attacks, audit report RUN judges them
    over sites, and names the sites that sent none.
    """
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.errors import OK
    from secure_fgl.store.sides.hand_overs import gather_files

    found = gather_files(files, out)
    if format is Format.json:
        sides = {"parties": list(found.parties), "missing": list(found.missing)}
        print_json({"run_dir": str(out), "run": found.run, **sides})
    else:
        typer.echo(str(out))
    if found.missing:
        say(f"MISSING: {', '.join(found.missing)}. Ask them for site hand-over.", style="yellow")
    else:
        say(f"All {len(found.parties)} parties are there: secure-fgl audit verify {out}")
    return OK
