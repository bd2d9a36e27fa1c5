"""Narrowing a kit that belongs to a party, and saying what is in force then."""

from __future__ import annotations

from pathlib import Path

from protocols.wire.roles import Role
from secure_fgl.errors import UsageError
from secure_fgl.store.sides.places import place_of, places_of
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from secure_fgl.transports.nvflare.joining import kept_charter
from secure_fgl.transports.nvflare.kits import harden
from secure_fgl.transports.nvflare.party import name_and_role

__all__ = ["check_belongs", "harden_kit"]


def harden_kit(party: str | Path, kit: str | Path) -> KitFiles:
    """Narrow a party's kit, and return it as it then is.

    Raises:
        UsageError: PARTY is no party's folder, KIT no kit or another party's, or one lies in the
            other; or the kit is not as NVFlare 2.9 makes them.
    """
    found = KitFiles.open(kit)
    check_belongs(Path(party), found)
    try:
        harden(found.folder)
    except OSError as error:
        raise UsageError(f"{found.folder} cannot be written ({error.strerror}).") from error
    if lacking := found.lacking():
        raise UsageError(
            f"{found.folder} was narrowed, and still {lacking[0]}.",
            why="somebody put it there besides",
            fix="take it away, then harden the kit again",
        )
    return found


def check_belongs(party: Path, kit: KitFiles, run: str | None = None) -> str:
    """See that a kit is of the site at which a party is reached, and return the site's name.

    Args:
        party: the party's folder.
        kit: the kit.
        run: in which run; None: in any that the party joined.

    Raises:
        UsageError: it is another's, or one folder lies in the other: NVFlare lets others read what
            lies in a kit.
    """
    name, role = name_and_role(party)
    place = party.resolve()
    if place.is_relative_to(kit.folder) or kit.folder.is_relative_to(place):
        raise UsageError(
            f"{party} and {kit.folder} lie in each other.",
            why="a kit is the engine's, and a party's keys lie outside of its reach",
            fix="move the party's folder elsewhere",
        )
    if kit.server != (role is Role.AGGREGATOR):
        raise UsageError(
            f"The kit is of a {'server' if kit.server else 'site'}, and {name} is {role}.",
            why="the aggregator runs at the server, every other party at a site",
            fix="give the kit of this party",
        )
    places = places_of(party).values() if run is None else [place_of(party, run)]
    charters = [charter for place in places if (charter := kept_charter(place)) is not None]
    reached = sorted({charter.sites.get(name, "nowhere") for charter in charters})
    if reached and kit.site not in reached:
        raise UsageError(
            f"The kit is of the site {kit.site}, and the charter reaches {name} at "
            f"{', '.join(reached)}.",
            fix="give the kit of this party, or draw up a charter with its site",
        )
    return kit.site
