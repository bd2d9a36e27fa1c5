"""One file with a trained model: its weights, and all that is needed to use them.

::

    weights  personal  beside.<name>  about.<name>    arrays, as a client predicts with them
    description                                       uint8: JSON, with the format's number and the
                                                      digest of the arrays

An npz without pickles. `secure-fgl model export` writes it from a run folder and `secure-fgl site
model` at a site, `load_model` makes a module of it anywhere, and `secure-fgl predict` and
`evaluate` take it in place of a run.
"""

from __future__ import annotations

import hmac
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from algorithms.tasks import ClientModel, DataSpec
from protocols.versions import MODEL_FILE
from protocols.wire.roster import weights_digest
from secure_fgl.errors import UsageError, path_of
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.store.client_models import Opened, Origin
from secure_fgl.store.files import FILE_LIMIT, content, create
from secure_fgl.store.trained_model import TrainedModel, of_all, of_client, size_of

__all__ = ["load_model", "model_bytes", "write_model"]


_DESCRIPTION = "description"
_MEMBERS = {
    "version",
    *("about", "alpha", "arrays", "best", "client", "config", "number", "plan", "run", "spec"),
}
_LARGEST = 1 << 24  # bytes of the description; a specification may have a million columns
_FIX = "take the file as secure-fgl model export or site model wrote it"


def model_bytes(trained: TrainedModel) -> bytes:
    """Return a model as the bytes of its file; the same model gives the same bytes."""
    opened = trained.source
    arrays: dict[str, Any] = {"weights": opened.model.shared}
    if opened.model.own is not None:
        arrays["personal"] = opened.model.own
    arrays |= {f"beside.{name}": np.asarray(v) for name, v in sorted(opened.model.beside.items())}
    told, about = dict(opened.about), {}
    for name, value in sorted(told.items()):
        if isinstance(value, np.ndarray):
            arrays[f"about.{name}"] = value
        else:
            about[name] = value.decode() if isinstance(value, bytes) else value
    facts = {
        "about": about,
        "alpha": opened.model.alpha,
        "arrays": weights_digest(arrays),
        "best": opened.best,
        "client": opened.client,
        "config": opened.origin.config,
        "number": opened.number,
        "plan": opened.origin.plan,
        "run": trained.facts.get("run", ""),
        "spec": asdict(opened.origin.spec),
        "version": MODEL_FILE.version,
    }
    text = json.dumps(facts, sort_keys=True, allow_nan=False).encode()
    return npz_bytes({**arrays, _DESCRIPTION: np.frombuffer(text, dtype=np.uint8)})


def write_model(trained: TrainedModel, to: Path) -> Path:
    """Write a model's file, for its owner alone (0600), and return its path.

    Raises:
        UsageError: something of that name is there, or it cannot be written.
    """
    try:
        create(to, model_bytes(trained), mode=0o600)
    except OSError as error:
        raise UsageError(
            f"{to} cannot be written.", why=str(error), fix="choose another --out"
        ) from error
    return to


def load_model(path: str | Path, run: str | Path | None = None) -> TrainedModel:
    """Return the model of a file, ready to predict.

    Args:
        path: what `secure-fgl model export` or `site model` wrote. It is no pickle, and no code in
            it is run. Its arrays are held to the digest that it names.
        run: the folder of the run that made it. The file must then be what `model export` would
            write of that run today, whose evidence is verified.

    Raises:
        UsageError: it cannot be read, is no model's file, one that this program cannot build, or
            not the model of `run`.
        EvidenceError: the evidence of `run` is broken.
        OtherVersion: it is of another version.
    """
    try:
        data = content(path_of(path), FILE_LIMIT)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    try:
        arrays = _arrays(data or b"")
        facts = json.loads(bytes(arrays.pop(_DESCRIPTION)))
    except (EOFError, KeyError, OSError, RecursionError, TypeError, ValueError, zipfile.BadZipFile):
        _bad(path)
    if not isinstance(facts, dict) or not MODEL_FILE.check(facts.get("version")):
        _bad(path)
    try:
        opened = _opened(facts, arrays)
        name = str(facts["run"])
    except (KeyError, TypeError, ValueError):
        _bad(path)
    size = size_of(opened.origin.spec, opened.origin.config)
    pieces = (opened.model.shared, *opened.model.personal)
    if any(piece.shape != (size,) for piece in pieces):
        _bad(path)
    made = of_client(opened) if opened.client else of_all(opened)
    if run is not None:
        _check_made_by(run, made.facts.get("client"), data or b"", path)
    return replace(made, facts={**made.facts, "run": name})


def _check_made_by(run: str | Path, client: str | None, data: bytes, path: str | Path) -> None:
    """Raise UsageError unless a run left just this model; the same model gives the same bytes."""
    from secure_fgl.store.finished_run import Run

    if not hmac.compare_digest(model_bytes(Run(run).trained(client)), data):
        raise UsageError(
            f"{path} is not the model that {run} left.",
            why="another run made it, or the file was changed",
            fix="take it out again: secure-fgl model export RUN --to FILE",
        )


def _arrays(data: bytes) -> dict[str, Any]:
    """Return the arrays of a container that holds nothing else; raises for anything else."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
    names = [member.filename for member in members]
    stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
    plain = stored and all(name.endswith(".npy") for name in names)
    large = any(m.file_size > _LARGEST for m in members if m.filename == f"{_DESCRIPTION}.npy")
    if not plain or large or len(set(names)) != len(names):
        raise ValueError
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _opened(facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> Opened:
    """Return what a file describes; raises KeyError, TypeError or ValueError for anything else."""
    if set(facts) != _MEMBERS or arrays["weights"].dtype != np.float32:
        raise ValueError
    if not hmac.compare_digest(weights_digest(arrays), str(facts["arrays"])):
        raise ValueError
    texts, numbers = ("client", "config", "plan", "run"), ("best", "number")
    if not all(type(facts[name]) is str for name in texts):
        raise ValueError
    if not all(type(facts[name]) is int for name in numbers):
        raise ValueError
    kinds = {"beside": dict[str, Any](), "about": dict[str, Any](facts["about"])}
    for name, array in arrays.items():
        kind, dot, member = name.partition(".")
        if dot:
            kinds[kind][member] = array
        elif name not in ("weights", "personal"):
            raise ValueError
    about = kinds["about"]
    if "spec" in about:
        about["spec"] = str(about["spec"]).encode()
    personal = (arrays["personal"],) if "personal" in arrays else ()
    alpha = float(facts["alpha"])
    model = ClientModel((arrays["weights"],), personal, alpha, kinds["beside"])
    origin = Origin(DataSpec(**facts["spec"]), facts["config"], facts["plan"])
    return Opened(facts["client"], model, origin, about, facts["number"], facts["best"])


def _bad(path: str | Path) -> NoReturn:
    raise UsageError(
        f"{path} is not a model's file of ours.",
        why="it was cut or changed, or another program wrote it",
        fix=_FIX,
    ) from None
