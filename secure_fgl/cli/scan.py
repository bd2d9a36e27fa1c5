"""``secure-fgl audit scan``: what is handed on is looked through for what is a site's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb

_MOST = 50  # places that a table lists


@verb
def scan(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR...", help="Logs, reports, exports, bundles, folders."),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The site's own tables.")
    ] = None,
    party: Annotated[
        Path | None,
        typer.Option("--party", metavar="PARTY", help="The party's folder: its keys and path."),
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Search files for identifiers, texts and rows of a site's tables, for its keys and paths.

    The tables are read for this alone and held in memory as digests under a key
    that is thrown away. What is found is named by file, line and kind, and never
    shown. Short and frequent values are left out, and counted.

    Finding nothing proves little: what is encrypted, reworded or added up is not
    found by looking at bytes.

    A pipe or a device is refused; in a folder what is no plain file counts as not
    searched.

    Exit code: 3 if something was found or could not be searched, else 0.
    """
    from secure_fgl.cli._shared.output import cell, console, grid, print_json, say
    from secure_fgl.errors import FINDINGS, OK, UsageError
    from secure_fgl.scanning import at_hand
    from secure_fgl.scanning import scan as look

    sought = at_hand(data, party)
    if sought is None:
        raise UsageError(
            "There is nothing to search for.", fix="name the site's own tables with --data DIR"
        )
    found = look(paths, sought)
    if format is Format.json:
        hits = [{"file": h.place, "line": h.line, "kind": h.kind} for h in found.hits]
        facts = {"sought": len(sought), "left_out": sought.short, "files": found.files}
        print_json({**facts, "found": hits, "not_searched": found.left})
    elif found.hits:
        table = grid(["File", ">Line", "Kind"])
        for hit in found.hits[:_MOST]:
            table.add_row(cell(hit.place), cell(str(hit.line or "")), cell(hit.kind))
        console(stderr=False).print(table)
    say(
        f"{len(found.hits)} found in {found.files} files; {len(sought)} values sought, "
        f"{sought.short} too short or too frequent."
    )
    for why in found.left:
        say(f"NOT SEARCHED: {why}", style="bold red")
    return FINDINGS if found.hits or found.left else OK
