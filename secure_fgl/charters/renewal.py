"""The next identity of a party, signed by the last one.

The others then know without a telephone that whoever held the last keys made the next ones. That
is worth nothing where somebody else may have had them: then the party makes keys anew with
``site new``, its last fingerprint is listed as revoked, and people compare the new one.
"""

from __future__ import annotations

from pathlib import Path

from secure_fgl.charters.facts import LIMIT, Facts, Renewal
from secure_fgl.charters.identity_file import (
    IDENTITY_FILE,
    Passphrase,
    load_identity,
    next_identity,
)
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content
from secure_fgl.store.sides.hand_overs import at_rest
from secure_fgl.store.sides.party_side import places_of

__all__ = ["renew"]


def renew(party: Path, passphrase: Passphrase | None = None) -> Facts:
    """Put the next identity in the place of the last one, and return what it announces.

    Charters of the last identity run here no more; the keys of captures, kept models, budgets and
    of the connection to the broker are others, and stay.

    Args:
        party: the folder.
        passphrase: locks the new keys.

    Raises:
        UsageError: a process of the party is at work or its run is not over; it announced nothing
            yet; its keys do not open, are locked and the next would not be, or cannot be written.
    """
    last = load_identity(party)
    name = last.party.name
    for place in places_of(party).values():
        with at_rest(place, "its run needs the keys that it has", "renew when the run is over"):
            pass
        run = place / "run"
        if (run / "roster.json").exists() and not (run / "heads" / f"{name}.checkpoint").exists():
            raise UsageError(
                f"The run in {place} is not over.",
                why="its messages are signed with the keys that this party has now",
                fix="renew when the run is over, or do without it: take its folder away",
            )
    path = party / f"{name}.facts.json"
    try:
        announced = Facts.decode(content(path, LIMIT) or b"")
        me, data = next_identity(party, last, passphrase)
        signed = Renewal.of(last, me.party, announced.organisation, announced.carrier)
        facts = Facts(me.party, announced.organisation, announced.carrier, signed)
        # The facts first: between the two the last keys are still there, and renew can be repeated.
        Folder(party, mode=0o644).write(path.name, facts.encode())
        Folder(party).write(IDENTITY_FILE, data)
    except OSError as error:
        raise UsageError(f"{path} or the keys beside it: {error.strerror}.") from error
    return facts
