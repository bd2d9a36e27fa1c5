"""``secure-fgl site renew``: a party's next keys, signed by the last ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.options import PassphraseFileOption, PassphraseOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def renew(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    passphrase: PassphraseOption = False,
    passphrase_file: PassphraseFileOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Make a party's next keys, signed by the last ones, which are gone afterwards.

    NAME.facts.json says so to whoever draws the next charter up. A charter of the last
    keys runs here no more, and site forget signs no more for a run that they were in:
    forget first. Where somebody else may have had the last keys, their
    signature says nothing: make a new folder with site new, and have the last
    fingerprint listed as revoked in consortium.yaml.
    """
    from secure_fgl.charters.renewal import renew as renewed
    from secure_fgl.cli._shared.options import new_passphrase
    from secure_fgl.cli._shared.output import print_json, print_pairs, say

    facts = renewed(party, new_passphrase(party, passphrase, passphrase_file))
    path = str(party / f"{facts.party.name}.facts.json")
    shown = {"facts": path, "fingerprint": facts.fingerprint, "last": facts.last_fingerprint}
    if format is Format.json:
        print_json(shown)
        return 0
    print_pairs([*shown.items()], wrap=False)
    say(f"Next: give {path} to whoever draws the next charter up.")
    return 0
