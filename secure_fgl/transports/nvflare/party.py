"""What one party of a run holds, in a folder of its own outside the engine's reach.

::

    PARTY/  identity.json (0600)   the seed of its keys; never leaves this folder
            NAME.facts.json        what it announced of itself; charters are held to it
            charter.json           what all parties agreed on, signed by all
            refused/               charters that this party refused; it starts none of them
            plugins/               this party's own copies of the plug-ins that the charter names
            tags.key (0600)        of clients in the mode `hmac` of matching: the key of item tags,
                                   which one of them made and its operators brought to the others
            keys/ (0700)           while the run lasts: the key to its kept state; and after it,
                                   those to its captured rounds and, at a client, its own model
            waivers/               of clients, where the policy holds models back
            run/                   its side of the run folder: documents, ledger, head, locked state
                                   and model

NVFlare lets an administrator list and read files below a site's workspace unless the site forbids
it, and sends a site's resource file to the server. So nothing of ours lies there: the site's
operator names this folder in the environment of the site's process.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crypto.handles import Mute
from crypto.samplers import KEY_BYTES, entropy
from protocols.errors import EvidenceError
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Party
from secure_fgl.config import Config, own_root
from secure_fgl.data.own import load_spec
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import UsageError
from secure_fgl.transports.nvflare.charter import LIMIT, Charter

PARTY_VARIABLE = "SECURE_FGL_PARTY"
"""Environment variable that names the party's folder; set by whoever starts the site."""
ROOT_VARIABLE = "SECURE_FGL_DATA"
"""Environment variable that names this site's own data folder."""

_SEED_BYTES = 32
_TAG_KEY = "tags.key"
_HEX_KEY = re.compile(r"[0-9a-f]{64}\n?")
_IDENTITY_LIMIT = 4096  # bytes; ours has about 150
_IDENTITY_KEYS = {"name", "role", "seed"}


@dataclass(frozen=True, repr=False)
class PartyKit(Mute):
    """One party's own secret keys beside what all parties agreed on; mute when printed.

    Attributes:
        folder: where it lies.
        me: this party's identity.
        charter: checked: everybody signed it, this party under its own name and keys.
    """

    folder: Path
    me: Identity = field(repr=False)
    charter: Charter

    @classmethod
    def load(cls, folder: str | Path) -> PartyKit:
        """Read a party's folder.

        Raises:
            UsageError: a file is missing or cannot be read, or the identity is open to others.
            EvidenceError: the charter is not what this party and all others signed.
        """
        place = Path(folder)
        me = load_identity(place)
        charter = Charter.decode(_read(place / "charter.json", LIMIT))
        charter.check()
        if charter.roster.party(me.party.name) != me.party:
            raise EvidenceError("charter", "it names this party with other keys or another role")
        check_not_refused(place, charter)
        return cls(place, me, charter)

    @property
    def name(self) -> str:
        """The party's name."""
        return self.me.party.name

    @property
    def run_folder(self) -> Path:
        """Where this party's documents, ledger and head go."""
        return self.folder / "run"

    @property
    def keys(self) -> Path:
        """Where the key to the state lies that is kept in the run folder."""
        return self.folder / "keys"

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
        found = _read(path, _IDENTITY_LIMIT).decode("ascii", "replace")
        _closed(path)
        if not _HEX_KEY.fullmatch(found):
            raise UsageError(f"{path} is not a key of ours: 64 hexadecimal digits.")
        return bytes.fromhex(found.strip())

    def plugin_files(self) -> list[Path]:
        """Return this party's own copies of the plug-ins that the charter names.

        One that is not in the party's folder is looked for among the installed packages.
        """
        names = self.charter.config.plugin_names
        files = [self.folder / "plugins" / f"{name}.py" for name in names]
        return [file for file in files if file.is_file()]

    def check_spec(self) -> None:
        """See that this site's own ``spec.yaml`` is the charter's; only clients need one.

        Raises:
            PlanDrift: it is another one; both digests are named.
            UsageError: it is missing at a client, or not valid.
        """
        agreed, root = self.charter.spec, self.config().data.root
        if agreed is None:
            return
        there = root is not None and (own_root(root) / SPEC_FILE).is_file()
        if there or self.me.party.role is Role.CLIENT:
            place = own_root(root)
            load_spec(place).check_digest(agreed.digest, place)

    def config(self) -> Config:
        """Return the agreed configuration with this site's own settings.

        The data folder is the one that the environment names; budgets and the keys to kept state
        and captures lie where `SECURE_FGL_BUDGETS` and `SECURE_FGL_STATE` say.
        """
        document = self.charter.config.shared().model_dump(mode="json")
        document["data"]["root"] = os.environ.get(ROOT_VARIABLE) or None
        return Config.literal(document)


def new_identity(folder: str | Path, name: str, role: Role) -> Party:
    """Make a party's keys, keep them in `folder`, and return what it announces to the others.

    Raises:
        UsageError: the folder holds an identity already, or cannot be written.
    """
    document = {"name": name, "role": str(role), "seed": entropy(_SEED_BYTES).hex()}
    place = Path(folder)
    _write_secret(place / "identity.json", json.dumps(document), f"The identity of {name}")
    return load_identity(place).party


def new_tag_key(folder: str | Path) -> Path:
    """Make the key of item tags for the mode `hmac`, at one client, and return its file.

    Whoever holds it opens, with the matcher, every item of everybody. Operators copy the file into
    the folders of all other clients, and of nobody else.

    Raises:
        UsageError: the folder holds one already, or cannot be written.
    """
    path = Path(folder) / _TAG_KEY
    _write_secret(path, entropy(KEY_BYTES).hex() + "\n", "The key of item tags")
    return path


def _write_secret(path: Path, text: str, what: str) -> None:
    """Write a new file that only its owner reads, durably."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        with os.fdopen(os.open(path, flags, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(
            f"{what} cannot be written ({error.strerror}).",
            why="the folder holds one already, or is not writable",
            fix="give every party a new folder of its own",
        ) from error


def _closed(path: Path) -> None:
    """Raise UsageError if other users of this machine can read a secret file."""
    if path.stat().st_mode & 0o077:
        raise UsageError(
            f"{path} can be read by other users of this machine.",
            why="it holds a secret key",
            fix=f"chmod 600 {path}, and make a new one if others had access",
        )


def load_identity(folder: Path) -> Identity:
    """Read a party's keys; raises UsageError unless the file is ours and closed to others."""
    path = folder / "identity.json"
    document = _json(_read(path, _IDENTITY_LIMIT))
    _closed(path)
    try:
        if set(document) != _IDENTITY_KEYS:
            raise ValueError
        seed = bytes.fromhex(document["seed"])
        if len(seed) != _SEED_BYTES:
            raise ValueError
        return Identity.from_seed(str(document["name"]), Role(document["role"]), seed)
    except (TypeError, ValueError):
        # Without its cause: the causes quote what they could not read.
        raise UsageError(f"{path} is not an identity of ours.") from None


def refusal_note(folder: Path, charter: Charter) -> Path:
    """Return where a party that refused a charter keeps its refusal."""
    return folder / "refused" / f"{charter.signed.hex()}.json"


def check_not_refused(folder: Path, charter: Charter) -> None:
    """Raise EvidenceError if the party of this folder refused this charter."""
    if refusal_note(folder, charter).exists():
        raise EvidenceError("charter", "this party refused it; another one is to be drawn up")


def kit_of_this_process() -> PartyKit:
    """Return the kit of the folder that the environment names; see :meth:`PartyKit.load`."""
    folder = os.environ.get(PARTY_VARIABLE)
    if not folder:
        raise UsageError(
            f"{PARTY_VARIABLE} is not set.",
            why="the site's process does not know which party it is",
            fix=f"start it with {PARTY_VARIABLE} naming the party's folder",
        )
    return PartyKit.load(folder)


def _read(path: Path, limit: int) -> bytes:
    try:
        if path.stat().st_size > limit:
            raise UsageError(f"{path} is too large to be one of our files.")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
