"""What a locked piece of a client's own model holds, written and read: plain values by name."""

from __future__ import annotations

import hmac
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from algorithms.tasks import ClientModel, DataSpec, Site, Weights
from algorithms.tasks.evaluation import about_site
from secure_fgl.errors import UsageError
from secure_fgl.run.model_digest import npz_digest

__all__ = ["Opened", "Origin", "content_of", "opened"]


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
