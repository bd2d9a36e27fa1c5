"""``secure-fgl broker check``: is the running server the one that the charter describes?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def broker_check(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    run: RunOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Connect as a stranger and as this party, and try all that the charter
    forbids.

    The server must refuse a connection without TLS, without a key and with an
    unknown key, must show a certificate of the charter's root, must store
    nothing, and must refuse this party every subject that is another party's.
    What a party may do is the same at every party, so each runs this for
    itself. Nothing is sent to another party. Exits 2 where something is not as
    the charter says.
    """
    from secure_fgl.cli._shared.checks import show
    from secure_fgl.sites.checks import Subject, asked_broker, utc

    subject = Subject(party, run, utc())
    subject.agree()
    return show(list(asked_broker(subject)), format, strict=False, party=str(party))
