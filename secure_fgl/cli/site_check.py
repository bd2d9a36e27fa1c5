"""``secure-fgl site check``: find before the start what would fail after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, exit_code, verb

if TYPE_CHECKING:
    from secure_fgl.transports.nvflare.checks.lines import Line


@verb
def site_check(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    kit: Annotated[
        Path | None,
        typer.Option("--kit", metavar="KIT", help="Its start-up kit; its server is asked, too."),
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

    Exit code: that of the first check that fails (2, 5 the charter, 6 plan or spec,
    7 the budget), 4 with --strict, 0.
    """
    from secure_fgl.cli._shared.output import WORDS, cell, console, grid, print_json
    from secure_fgl.transports.nvflare.checks.listed import check_site

    lines = list(check_site(party, kit, run=run))
    if format is Format.json:
        print_json({"party": str(party), "checks": [_document(line) for line in lines]})
        return _code(lines, strict=strict)
    table = grid(["Check", "", "What was found, and what to do"])
    for line in lines:
        status, todo = str(line.status), f"What to do: {line.todo}" if line.todo else ""
        said = "\n".join(filter(None, (line.said, todo)))
        table.add_row(cell(line.name), cell(status, WORDS[status]), cell(said))
    console(stderr=False).print(table)
    return _code(lines, strict=strict)


def _document(line: Line) -> dict[str, str]:
    return {"check": line.name, "status": str(line.status), "said": line.said, "todo": line.todo}


def _code(lines: list[Line], *, strict: bool) -> int:
    from secure_fgl.errors import INCONCLUSIVE, OK
    from secure_fgl.transports.nvflare.checks.lines import Status

    for line in lines:
        if line.error is not None:
            return exit_code(line.error)
    unseen = any(line.status is Status.NOT_CHECKED for line in lines)
    return INCONCLUSIVE if strict and unseen else OK
