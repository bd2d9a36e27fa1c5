"""``secure-fgl site check``: find before the start what would fail after it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def site_check(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", readable=False, help="The party's folder.")
    ],
    run: RunOption = None,
    broker: Annotated[
        bool, typer.Option("--broker", help="Also connect to the broker, as broker check does.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 where something was not checked.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Look at a site before the start: folder, keys, charter, plan, data, budget,
    disk, carrier.

    Nothing is sent without --broker. Counts of what was put right in the data
    stay here: do not pass the output on unread.

    Exit code: that of the first check that fails (2, 5 the charter, 6 plan or
    spec, 7 the budget), 4 with --strict, 0.
    """
    from secure_fgl.cli._shared.checks import show
    from secure_fgl.sites.checks import check_site

    found = list(check_site(party, run=run, broker=broker))
    return show(found, format, strict=strict, party=str(party))
