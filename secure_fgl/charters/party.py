"""What one party holds in a folder of its own, and of each of its runs.

::

    PARTY/  identity.json (0600)   the seed of its keys, in clear or under a passphrase; never
                                   leaves this folder
            site.log (0600)        why something went wrong here, in words that hold no data or key
            NAME.facts.json        what it announced of itself; charters are held to it
            refused/               charters that this party refused; it starts none of them
            keys/ (0700)           by run: while it lasts, the key to its kept state; and after it,
                                   those to its captured rounds and, at a client, its own model
            socket.RUN (0600)      while the party's process of that run listens
            carrier/ (0700)        the key of its connection to the broker, and by run, what its
                                   carrier needs to know; no other file is open to the carrier
            runs/RUN/              one folder for each run whose charter this party joined:

    RUN/    charter.json           what all parties agreed on, signed by all
            plugins/               this party's own copies of the plug-ins that the charter names
            tags.key (0600)        of clients in the mode `hmac` of matching: the key of item tags,
                                   which one of them made and its operators brought to the others
            site.lock, lock        which processes are at work
            stopped                the operator's word that nothing goes on
            status.json            what the operator watches
            destroying             while its ledger is destroyed by policy: who goes on with that
            waivers/               of clients, where the policy holds models back
            run/                   its side of the run folder: documents, ledger, head, locked state
                                   and model

RUN is the run's name. Whoever reaches a run does so by that name, and what lies in its folder must
be of it: a run that this party never joined has no folder, and so no process and no socket.
"""

from __future__ import annotations

import hmac
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from crypto.samplers import KEY_BYTES, Mute, entropy
from protocols.errors import EvidenceError
from protocols.wire.roles import Role
from protocols.wire.roster import Identity
from secure_fgl.charters.charter import LIMIT, Charter, check_versions
from secure_fgl.charters.identity_file import (
    check_closed,
    load_identity,
    name_and_role,
    new_identity,
    write_secret,
)
from secure_fgl.config import Config, own_root
from secure_fgl.data.own import load_spec
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import UsageError
from secure_fgl.store.files import content
from secure_fgl.store.sides.party_side import party_of, place_of

__all__ = [
    "ROOT_VARIABLE",
    "PartyKit",
    "check_not_refused",
    "load_identity",
    "name_and_role",
    "new_identity",
    "new_tag_key",
    "refusal_note",
]

ROOT_VARIABLE = "SECURE_FGL_DATA"
"""Environment variable that names this site's own data folder."""

_TAG_KEY = "tags.key"
_HEX_KEY = re.compile(r"[0-9a-f]{64}\n?")
_TAG_LIMIT = 128  # bytes; ours has 65


@dataclass(frozen=True, repr=False)
class PartyKit(Mute):
    """One party's own secret keys beside what all parties agreed on; mute when printed.

    Attributes:
        folder: of the run at this party, ``PARTY/runs/RUN``.
        me: this party's identity.
        charter: checked: everybody signed it, this party under its own name and keys.
    """

    folder: Path
    me: Identity = field(repr=False)
    charter: Charter

    @classmethod
    def load(cls, party: str | Path, run: str | None = None) -> PartyKit:
        """Read a party's folder, and what it holds of a run.

        Args:
            party: the party's folder.
            run: the run's name; None: the one run that the party joined.

        Raises:
            UsageError: the party never joined that run, or joined several and none is named; a
                file is missing or cannot be read, the identity is open to others, or programs here
                are of other versions than the charter says.
            EvidenceError: the charter is not what this party and all others signed, or is of
                another run than its folder.
        """
        me, place = load_identity(Path(party)), place_of(party, run)
        charter = Charter.decode(_read(place / "charter.json", LIMIT))
        check_versions(charter.versions)
        return cls.agreed(place, me, charter)

    @classmethod
    def agreed(cls, folder: Path, me: Identity, charter: Charter) -> PartyKit:
        """Hold a party's keys, the folder of a run, and a charter to each other.

        Raises:
            EvidenceError: the charter is not what this party and all others signed, or is of
                another run than the folder.
        """
        charter.check()
        if not hmac.compare_digest(charter.run, folder.name):
            raise EvidenceError("charter", "it is of another run than the folder in which it lies")
        if me.party.name not in charter.carriers or charter.roster.party(me.party.name) != me.party:
            raise EvidenceError("charter", "it names this party with other keys or another role")
        check_not_refused(party_of(folder), charter)
        return cls(folder, me, charter)

    @property
    def name(self) -> str:
        """The party's name."""
        return self.me.party.name

    @property
    def party(self) -> Path:
        """The party's folder."""
        return party_of(self.folder)

    @property
    def run_folder(self) -> Path:
        """Where this party's documents, ledger and head go."""
        return self.folder / "run"

    @property
    def keys(self) -> Path:
        """Where the key to the state lies that is kept in the run folder."""
        return self.party / "keys"

    def tag_key(self) -> bytes:
        """Return the key of item tags that all clients hold (`hmac`), 32 bytes.

        Clients with different keys find out when the matcher compares their canaries.

        Raises:
            UsageError: it is not there, open to others, or no key of ours.
        """
        path = self.folder / _TAG_KEY
        if not path.is_file():
            raise UsageError(
                f"{path} is missing.",
                why="the policy matches items by tags of one key that all clients hold (hmac), "
                "and nothing of ours carries it from machine to machine",
                fix="let one client make it (new_tag_key) and bring it to the others by hand; or "
                "use the mode oprf, which needs none",
            )
        found = _read(path, _TAG_LIMIT).decode("ascii", "replace")
        check_closed(path)
        if not _HEX_KEY.fullmatch(found):
            raise UsageError(f"{path} is not a key of ours: 64 hexadecimal digits.")
        return bytes.fromhex(found.strip())

    def plugin_files(self) -> list[Path]:
        """Return this party's own copies of the plug-ins that the charter names.

        One that is not in the folder of the run is looked for among the installed packages.
        """
        names = self.charter.config.plugin_names
        files = [self.folder / "plugins" / f"{name}.py" for name in names]
        return [file for file in files if file.is_file()]

    def check_spec(self) -> bool:
        """See that this site's own ``spec.yaml`` is the charter's; only clients need one.

        Returns:
            Whether there was one to compare.

        Raises:
            PlanDrift: it is another one; both digests are named.
            UsageError: it is missing at a client, or not valid.
        """
        agreed, root = self.charter.spec, self.config().data.root
        if agreed is None:
            return False
        there = root is not None and (own_root(root) / SPEC_FILE).is_file()
        if not there and self.me.party.role is not Role.CLIENT:
            return False
        place = own_root(root)
        load_spec(place).check_digest(agreed.digest, place)
        return True

    def config(self) -> Config:
        """Return the agreed configuration with this site's own settings.

        The data folder is the one that the environment names; budgets and the keys to kept state
        and captures lie where `SECURE_FGL_BUDGETS` and `SECURE_FGL_STATE` say.
        """
        document = self.charter.config.shared().model_dump(mode="json")
        document["data"]["root"] = os.environ.get(ROOT_VARIABLE) or None
        return Config.literal(document)


def new_tag_key(party: str | Path, run: str | None = None) -> Path:
    """Make the key of item tags for the mode `hmac`, at one client, and return its file.

    Whoever holds it opens, with the matcher, every item of everybody. Operators copy the file into
    the folders of this run at all other clients, and of nobody else.

    Args:
        party: the client's folder.
        run: the run's name; None: the one run that the client joined.

    Raises:
        UsageError: the client never joined that run; its folder holds a key already, or cannot be
            written.
    """
    path = place_of(party, run) / _TAG_KEY
    write_secret(path, entropy(KEY_BYTES).hex() + "\n", "The key of item tags")
    return path


def refusal_note(party: Path, charter: Charter) -> Path:
    """Return where a party that refused a charter keeps its refusal."""
    return party / "refused" / f"{charter.signed.hex()}.json"


def check_not_refused(party: Path, charter: Charter) -> None:
    """Raise EvidenceError if the party of this folder refused this charter."""
    if refusal_note(party, charter).exists():
        raise EvidenceError("charter", "this party refused it; another one is to be drawn up")


def _read(path: Path, limit: int) -> bytes:
    try:
        data = content(path, limit)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    if data is None:
        raise UsageError(f"{path} is too large to be one of our files.")
    return data
