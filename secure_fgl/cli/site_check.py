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
    kit: Annotated[
        Path | None,
        typer.Option(
            "--kit",
            metavar="KIT",
            readable=False,  # one of both is another user's, as it should be
            help="Its start-up kit; its server is asked, too.",
        ),
    ] = None,
    run: RunOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 where something was not checked.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Look at a site before the start: folder, keys, charter, plan, data, budget, disk, kit.

    Nothing is sent. With --kit, at the end, the server's name is looked up and a TLS
    handshake made. Counts of what was put right in the data stay here: do not pass
    the output on unread.

    Where the kit has a user of its own, run it as root, who looks at each side as
    its owner. The party's user sees the party's side alone, the kit's user the kit's.

    Exit code: that of the first check that fails (2, 5 the charter, 6 plan or spec,
    7 the budget), 4 with --strict, 0.
    """
    from secure_fgl.cli._shared.checks import show
    from secure_fgl.transports.nvflare.checks.listed import check_site

    found = list(check_site(party, kit, run=run))
    return show(found, format, strict=strict, party=str(party))
