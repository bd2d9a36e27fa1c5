"""``secure-fgl charter sign``: agree to a charter."""

from __future__ import annotations

from secure_fgl.cli._shared.charters import CharterArgument, PartyOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def sign(file: CharterArgument, party: PartyOption, format: FormatOption = Format.table) -> int:
    """Add this party's signature to FILE. Read it first: secure-fgl charter show FILE.

    Exits 5 if the charter names this party with other keys, contradicts itself,
    or was refused by this party. A signature cannot be taken back: copies of the
    file are with others.
    """
    from secure_fgl.charters import joining
    from secure_fgl.cli._shared.charters import load_charter, tell, write_charter

    charter = joining.sign(party, load_charter(file))
    write_charter(file, charter)
    tell(charter, file, as_json=format is Format.json)
    return 0
