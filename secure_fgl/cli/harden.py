"""``secure-fgl site harden``: narrow what jobs of NVFlare may do at this site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb

_READ = "other sites and the server's operator can read what the kit's user can read"


@verb
def harden(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    kit: Annotated[
        Path, typer.Option("--kit", metavar="KIT", help="Its start-up kit, as NVFlare made it.")
    ],
    format: FormatOption = Format.table,
) -> int:
    """Narrow a start-up kit of NVFlare, and say what is in force in it now.

    A job may name our two classes and bring no code; no log is streamed away;
    NVFlare's own processes show each other certificates; a server's stores lie below
    the kit, or where nvflare deploy prepare put them. Repeat it whenever the kit was
    made anew or prepared.

    No setting keeps other sites and the server's operator from reading what the user
    of NVFlare's process can read: give the kit a user of its own.
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
    shown += [("code in jobs", "refused"), ("logs", "stay here")]
    shown += [("its own processes", "show certificates"), ("all the same", _READ)]
    shown += [("stores", place) for place in found.stores()]
    print_pairs(shown, wrap=False)
    return 0
