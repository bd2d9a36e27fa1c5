"""What a locked piece of a client's own model holds, written and read: plain values by name."""

from __future__ import annotations

import contextlib
import hmac
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.tasks import ClientModel, DataSpec, Site, Weights
from algorithms.tasks.evaluation import about_site, kept_model, last_model
from crypto.aead import new_key
from protocols.errors import EvidenceError, LedgerError, OtherVersion
from protocols.sessions.store.locked import LockedStateStore
from protocols.versions import CLIENT_MODEL
from secure_fgl.errors import UsageError
from secure_fgl.isolation.frames import PlainCodec
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.run.model_digest import npz_digest
from secure_fgl.store.files import Folder, run_name
from secure_fgl.store.state_store import VARIABLE, FileStateStore, default_folder


@dataclass(frozen=True)
class Origin:
    """What a client's model was trained as.

    Attributes:
        spec: what is public of the data.
        config: of the run, as text.
        plan: digest of the plan.
    """

    spec: DataSpec
    config: str
    plan: str

    @classmethod
    def of(cls, prepared: Any) -> Origin:
        """Return the origin of models of a `secure_fgl.run.simulation.Preparation`."""
        return cls(prepared.task.spec, prepared.config.text(), prepared.plan.digest)


@dataclass(frozen=True)
class Opened:
    """One client's model with what belongs to it.

    Attributes:
        client: its name in the plan.
        model: what it predicts with.
        origin: what it was trained as.
        about: of the site, see `algorithms.tasks.Site`.
        number: of its score; 0 where nothing was scored.
        best: number of the best score; another one where the client was away when that was taken.
    """

    client: str
    model: ClientModel
    origin: Origin
    about: Mapping[str, Any]
    number: int
    best: int


def content_of(
    kept: tuple[ClientModel, int, int], site: Site, origin: Origin, checkpoint: bytes
) -> dict[str, Any]:
    """Return what a piece holds: plain values."""
    model, number, best = kept
    shared = _arrays(checkpoint)
    weights, personal, alpha, beside = model.kept()
    return {
        "weights": tuple(_stored(piece, shared) for piece in weights),
        "personal": tuple(_stored(piece, shared) for piece in personal),
        "alpha": alpha,
        "beside": beside,
        "checkpoint": npz_digest(checkpoint) if checkpoint else "",
        "spec": asdict(origin.spec),
        "config": origin.config,
        "plan": origin.plan,
        "about": dict(about_site(site)),
        "number": number,
        "best": best,
    }


def _arrays(checkpoint: bytes) -> dict[str, Weights]:
    if not checkpoint:
        return {}
    with np.load(io.BytesIO(checkpoint), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _stored(piece: Weights, shared: Mapping[str, Weights]) -> Any:
    """Return the name of an equal vector of the checkpoint, or the vector itself."""
    piece = np.asarray(piece, dtype=np.float32)
    for name, array in shared.items():
        if array.dtype == piece.dtype and np.array_equal(array, piece):
            return name
    return piece


def opened(client: str, content: Mapping[str, Any], checkpoint: bytes) -> Opened:
    """Return the model of a piece's content.

    Args:
        client: its name in the plan.
        content: of `content_of`.
        checkpoint: bytes of the shared model's file, whose vectors may be named in it.

    Raises:
        UsageError: it names vectors of another checkpoint.
    """
    named = any(isinstance(p, str) for k in ("weights", "personal") for p in content[k])
    if named and not hmac.compare_digest(npz_digest(checkpoint), content["checkpoint"]):
        raise UsageError(
            f"The model of {client} belongs to another checkpoint than this run folder holds.",
            why="checkpoints/ was changed, or comes from elsewhere",
            fix="take the run folder as the run left it",
        )
    shared = _arrays(checkpoint) if named else {}

    def whole(name: str) -> tuple[Weights, ...]:
        return tuple(shared[p] if isinstance(p, str) else p for p in content[name])

    model = ClientModel(whole("weights"), whole("personal"), content["alpha"], content["beside"])
    origin = Origin(DataSpec(**content["spec"]), content["config"], content["plan"])
    told = content["about"], content["number"], content["best"]
    return Opened(client, model, origin, *told)


# --- Clients' own models after a run: each locked under its site's key, in its site's part of the
# run ---
#
# ::
#
#   RUN/models/<client>/model                            locked; never part of a bundle
#   RUN/models/<client>/last                             likewise, where a party runs on its own
#   $SECURE_FGL_STATE/models/<run>/<client>.key          the key to it, 0600, outside the run folder
#
# In a simulation all clients' keys lie in one place, as all clients run in one process. Whoever has
# the run folder without the key of a client learns of its model what the size of the file tells.
#
# A piece holds what the client predicts with (`algorithms.tasks.ClientModel`) at the best round, or
# as trained last where nothing is scored, and what belongs to it: names, scaling and the digest of
# the site's data. Vectors that are in the run's own checkpoint are named there, by its digest, and
# not copied: of FedAvg's clients only names are left, of a user its own vector.
#
# Where a party runs on its own the model that was scored last lies beside it, if that is another
# one: no folder there holds a checkpoint of it. The party's ledger names both pieces by the SHA-256
# of their locked bytes.
#
# The keys stay until `forget`, or until somebody removes them.

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


# --- Which of a run's client models is meant by a site's name, and what all sites agreed on ---

_SHOWN = 9


def agreed(models: ClientModels, checkpoint: bytes) -> str | None:
    """Return what all sites agreed on about their tables (JSON), as one that opens here tells it.

    None for published data, and where none opens.
    """
    for opened in _openable(models, checkpoint):
        return spec_of(opened)
    return None


def spec_of(opened: Opened) -> str | None:
    """Return what a model's sites agreed on about their tables, as JSON; None of published data."""
    found = opened.about.get("spec")
    return None if found is None else bytes(found).decode()


def of_site(models: ClientModels, site: str, checkpoint: bytes, *, folder: bool = False) -> Opened:
    """Return a site's model, by the name of its folder, or by that of its client in the plan.

    Args:
        models: of a run.
        site: the name.
        checkpoint: bytes of the shared model's file.
        folder: whether it can only be a folder's.

    Raises:
        NoSuchModel: no site is called so, or its model does not open here.
        UsageError: it was changed, or the name is one site's and another one's client.
    """
    named, names = list[Opened](), list[str]()
    for opened in _openable(models, checkpoint):
        called = str(opened.about.get("site", opened.client))  # published data has no folders
        names.append(called)
        if called == site:
            named.append(opened)
    other = not folder and site in models.clients()
    if len(named) == 1 and not (other and named[0].client != site):
        return named[0]
    if named:
        raise UsageError(
            f"{site!r} is one client's site and another client's name in the plan.",
            why=f"the plan calls that site {named[0].client}",
            fix="rename the folders of the sites, and run again",
        )
    if other:
        return models.open(site, checkpoint)
    there = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    raise NoSuchModel(
        f"This run kept no model of {site!r} that opens here.",
        why="there is no such site, or its key is at its own site only",
        fix=f"name one of: {there}" if there else "ask at the site, where its key is",
    )


def _openable(models: ClientModels, checkpoint: bytes) -> Iterator[Opened]:
    for client in models.openable():
        # A spoilt one spoils no other; asked for by its client's name, it is told of.
        with contextlib.suppress(UsageError, OtherVersion, EvidenceError):
            yield models.open(client, checkpoint)
