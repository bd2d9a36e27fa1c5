"""``secure-fgl site harden``: narrow what NVFlare lets others do at this site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def harden(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    kit: Annotated[
        Path, typer.Option("--kit", metavar="KIT", help="Its start-up kit, as NVFlare made it.")
    ],
    format: FormatOption = Format.table,
) -> int:
    """Narrow a start-up kit of NVFlare, and say what is in force in it now.

    A job may name our two classes and bring no code; nobody lists or reads files from
    afar; no log is streamed away; a server's stores lie below the kit, or where
    nvflare deploy prepare put them. Repeat it whenever the kit was made anew or
    prepared.
    """
    from secure_fgl.cli._shared.output import print_json, print_pairs
    from secure_fgl.transports.nvflare.checks.hardening import harden_kit

    found = harden_kit(party, kit)
    rights = {role: sorted(may) for role, may in found.rights().items()}
    shown = [("kit", str(found.folder)), ("site", found.site)]
    if format is Format.json:
        known = {"classes": found.classes(), "rights": rights, "stores": found.stores()}
        print_json({**dict(shown), **known})
        return 0
    shown += [("a job may name", name) for name in found.classes()]
    shown += [(f"{role} may", ", ".join(may) or "nothing") for role, may in rights.items()]
    shown += [("code in jobs", "refused"), ("logs", "stay here"), ("files from afar", "nobody")]
    shown += [("stores", place) for place in found.stores()]
    print_pairs(shown, wrap=False)
    return 0
