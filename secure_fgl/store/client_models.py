"""Clients' own models after a run: each locked under its site's key, in its site's part of the run.

::

    RUN/models/<client>/model                            locked; never part of a bundle
    RUN/models/<client>/last                             likewise, where a party runs on its own
    $SECURE_FGL_STATE/models/<run>/<client>.key          the key to it, 0600, outside the run folder

In a simulation all clients' keys lie in one place, as all clients run in one process. Whoever has
the run folder without the key of a client learns of its model what the size of the file tells.

A piece holds what the client predicts with (`algorithms.tasks.ClientModel`) at the
best round, or as trained last where nothing is scored, and what belongs to it: names, scaling and
the digest of the site's data. Vectors that are in the run's own checkpoint are named there, by its
digest, and not copied: of FedAvg's clients only names are left, of a user its own vector.

Where a party runs on its own the model that was scored last lies beside it, if that is another one:
no folder there holds a checkpoint of it. The party's ledger names both pieces by the SHA-256 of
their locked bytes.

The keys stay until `forget`, or until somebody removes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from algorithms.tasks import Site
from algorithms.tasks.evaluation import kept_model, last_model
from crypto.rest import new_key
from protocols.errors import LedgerError, OtherVersion
from protocols.sessions.store.locked import LockedStateStore
from protocols.versions import CLIENT_MODEL
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.isolation.values import PlainCodec
from secure_fgl.store.files import Folder, run_name
from secure_fgl.store.model_pieces import Opened, Origin, content_of, opened
from secure_fgl.store.state_store import VARIABLE, FileStateStore, default_folder

__all__ = ["ClientModels", "NoSuchModel", "Opened", "Origin"]

_PIECE, _LAST = "model", "last"

CHECKPOINTS = ("checkpoints/best.npz", "checkpoints/final.npz")
"""The shared model: the best one on validation, or the last one where nothing was scored."""


class NoSuchModel(UsageError):
    """There is no model of that site here, or its key is elsewhere; nothing is spoilt."""


class ClientModels:
    """The clients' models of one run.

    Args:
        run: the run's name.
        folder: the run folder.
        keys: folder of all runs' keys; the user's own if None.

    Raises:
        UsageError: that is no run's name.
    """

    def __init__(self, run: str, folder: Path, keys: Path | None = None) -> None:
        self._keys = Folder((keys or default_folder()) / "models")
        self._run, self._folder = run_name(run), Folder(folder)

    @property
    def place(self) -> Path | None:
        """The folder of the keys that are here, outside the run folder; None if there are none."""
        return self._keys.path / self._run if self.openable() else None

    def keep_all(self, sites: Mapping[str, Site], origin: Origin) -> None:
        """Write the models of all clients of this process; see `keep`."""
        checkpoint = next(filter(None, map(self._folder.read, CHECKPOINTS)), b"")
        for client, site in sites.items():
            self.keep(client, site, origin, checkpoint)

    def keep(
        self,
        client: str,
        site: Site,
        origin: Origin,
        checkpoint: bytes = b"",
        *,
        last: bool = False,
    ) -> dict[str, str]:
        """Write a client's model under a new key; nothing for a client that never trained.

        Args:
            client: its name.
            site: its memory holds the model; its data are not looked at.
            origin: what the model was trained as.
            checkpoint: the run's own model beside it, whose vectors are not written again.
            last: whether the model that was scored last is kept, too, where it is another one.

        Returns:
            The SHA-256 (hex) of each locked piece, by its name.

        Raises:
            UsageError: it cannot be written.
        """
        kept = kept_model(site)
        if kept is None:
            return {}
        pieces = {_PIECE: content_of(kept, site, origin, checkpoint)}
        scored = last_model(site) if last else None
        if scored is not None and scored[1] != kept[1]:
            pieces[_LAST] = content_of(scored, site, origin, checkpoint)
        key = new_key()
        try:
            self._keys.write(f"{self._run}/folder", self._place())
            self._keys.write(self._key_of(client), key)
            store = self._store(client, key)
            return {name: store.put(name, PlainCodec(()).pack(p)) for name, p in pieces.items()}
        except (OSError, LedgerError) as error:
            raise UsageError(
                f"The model of {client} cannot be kept ({getattr(error, 'what', error)}).",
                why=f"its key goes to {self._keys.path}, and never into the run folder",
                fix=f"set {VARIABLE} to a folder of your own, or keep_models: false in the config",
            ) from error

    def clients(self) -> list[str]:
        """Return the clients whose models lie here, with or without their keys, sorted."""
        return self._folder.folders("models")

    def openable(self) -> list[str]:
        """Return the clients whose models lie here and whose keys are in this process's reach."""
        return [name for name in self.clients() if self._keys.holds(self._key_of(name))]

    def open(self, client: str, checkpoint: bytes = b"", *, last: bool = False) -> Opened:
        """Return a client's model.

        Args:
            client: its name in the plan.
            checkpoint: bytes of the shared model's file, see `CHECKPOINTS`.
            last: the one that was scored last, in place of the best one.

        Raises:
            NoSuchModel: there is none, or its key is not here.
            UsageError: it was changed.
            OtherState: it is of another version.
        """
        close_memory()
        if client not in self.clients():
            raise NoSuchModel(
                f"This run kept no model of {client}.",
                why="it never trained, the run did not finish, or it had keep_models: false",
            )
        key = self._keys.read(self._key_of(client))
        if not key:
            raise NoSuchModel(
                f"The model of {client} is locked, and its key is not here.",
                why=f"a client's model opens at its own site only; keys lie in {self._keys.path}",
                fix=f"run this at the site of {client}, with {VARIABLE} set as it was",
            )
        try:
            apart = last and self._folder.holds(f"models/{client}/{_LAST}")
            piece = _LAST if apart else _PIECE
            content = PlainCodec(()).unpack(self._store(client, key).get(piece))
        except OtherVersion:
            raise
        except LedgerError as error:
            raise UsageError(
                f"The model of {client} cannot be opened.",
                why="it was changed, or its key is another run's",
                fix="take the run folder as its site left it",
            ) from error
        return opened(client, content, checkpoint)

    def forget(self) -> int:
        """Destroy all keys of the run's models that are here, then the pieces; return how many.

        A roster names whichever run its writer likes: a folder from elsewhere removes no keys.

        Raises:
            UsageError: there is nothing to forget, the keys are not here or another folder's, or
                something is still there afterwards.
        """
        here = self.openable()
        if not here:
            raise UsageError(
                "No key to a client's model of this run is here; nothing was removed.",
                why="the models were forgotten before, never kept, or their keys are at other "
                f"sites; keys lie in {self._keys.path}",
                fix=f"run this at the site, with {VARIABLE} set as it was",
            )
        if self._keys.read(f"{self._run}/folder") != self._place():
            raise UsageError(
                "The keys that are here belong to another folder of this run; nothing was removed.",
                why="this folder was moved or copied, or names a run of yours",
                fix="name the folder that the run was written to",
            )
        self._keys.remove_tree(self._run)
        self._folder.remove_tree("models")
        if self._keys.there(self._run) or self._folder.there("models"):
            raise UsageError(
                "The clients' models, or their keys, could not be removed.",
                why="a folder is a link, or is not writable",
                fix=f"remove {self._keys.path / self._run} and {self._folder.path / 'models'}",
            )
        return len(here)

    def _place(self) -> bytes:
        return os.fsencode(self._folder.path.resolve())

    def _key_of(self, client: str) -> str:
        return f"{self._run}/{client}.key"

    def _store(self, client: str, key: bytes) -> LockedStateStore:
        place = FileStateStore(self._folder, f"models/{client}", key)
        return LockedStateStore(place, self._run, client, CLIENT_MODEL)
