"""``secure-fgl site new``: a party's folder with keys of its own, and its facts for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.options import PassphraseFileOption, PassphraseOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def new(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder, to be made.")],
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="As in data.partition.names; other roles have one name."
        ),
    ],
    organisation: Annotated[
        str, typer.Option("--organisation", metavar="ORG", help="Who the party is, in words.")
    ],
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="client, aggregator, key_authority, ...")
    ],
    consortium: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="consortium.yaml, to which the party is held."),
    ] = None,
    passphrase: PassphraseOption = False,
    passphrase_file: PassphraseFileOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Make a party's keys, and NAME.facts.json beside them for whoever draws the charter up.

    PARTY/identity.json is secret and stays on this machine; with a passphrase it is
    locked besides, and whoever uses it has to have both. The facts are public; tell
    the others their fingerprint by telephone, since a file that is carried can be
    exchanged.
    """
    from protocols.wire.roles import Role
    from secure_fgl.charters.broker import new_carrier_key
    from secure_fgl.charters.charter import THREE
    from secure_fgl.charters.facts import Facts, check_party, misnamed_organisation
    from secure_fgl.charters.party import new_identity
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.cli._shared.options import new_passphrase
    from secure_fgl.cli._shared.output import print_json, print_pairs, say
    from secure_fgl.consortium import Consortium
    from secure_fgl.errors import UsageError

    chosen = Role(choose("role", role.replace("-", "_"), map(str, Role)))
    check_party(name, chosen)
    if wrong := misnamed_organisation(organisation):
        raise UsageError(f"The organisation {wrong}.", fix="--organisation 'Hospital North'")
    if consortium is not None:
        Consortium.load(consortium).check_member(name, chosen, organisation)
    public = new_identity(party, name, chosen, new_passphrase(party, passphrase, passphrase_file))
    path = party / f"{name}.facts.json"
    try:
        facts = Facts(public, organisation, new_carrier_key(party))
        path.write_bytes(facts.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}).") from error
    if format is Format.json:
        print_json({"facts": str(path), "fingerprint": facts.fingerprint})
        return 0
    print_pairs([("facts", str(path)), ("fingerprint", facts.fingerprint)], wrap=False)
    if chosen is Role.CLIENT:
        say(
            "A run takes four organisations with data or more, or three under a policy that says "
            f"minimum_cohort: 2: {THREE}."
        )
    say(f"Next: give {path} to whoever draws the charter up, and read the fingerprint out to them.")
    return 0
