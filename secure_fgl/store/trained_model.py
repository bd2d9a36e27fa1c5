"""A model of a finished run, as people take it away: a plain module, and its files.

Its file is that of `secure_fgl.model_file`: an npz, nothing is pickled.

The shared model is used after the run's evidence was verified. A client's own model opens where
that client's key is (`secure_fgl.store.client_models`). What a model that is given away tells of
the records that trained it is measured by attacks (`secure-fgl audit attack`); noise is what bounds
it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algorithms.nn import model as model_file
from algorithms.nn import model_names
from algorithms.tasks import ClientModel, DataSpec
from algorithms.tasks.training import plain_model
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from protocols.plan.plan import Plan
from protocols.wire.roster import weights_digest
from secure_fgl.catalogue import algorithm_names, preferred_model
from secure_fgl.config import Config
from secure_fgl.data.kinds import build_task, model_name
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.errors import UsageError
from secure_fgl.run.model_digest import npz_digest
from secure_fgl.store.client_models import Opened, Origin, spec_of
from secure_fgl.store.files import create

TAKES = {
    "node": "x, edge_index",
    "graph": "x, edge_index, batch",
    "rating": "user, item, edge_index, rating",
}
"""What a module is called with, by task; see `algorithms.nn._shared.plain`."""

TELLS = (
    "A model tells something of the records that trained it; secure-fgl audit attack measures "
    "what, and only noise (a policy's epsilon) bounds it."
)


@dataclass(frozen=True)
class TrainedModel:
    """A model with what its users must know.

    Attributes:
        module: of PyTorch Geometric's layers; it gives logits, or ratings on the public scale.
        spec: what is public of the data.
        facts: architecture, inputs and their scaling, names, digests; plain values.
        scaling: arrays ``mean`` and ``scale`` of the site's columns, where features are
            ``standard``; else empty.
        source: what it was built of; what a file of it holds (`secure_fgl.model_file`).
        agreed: what its sites agreed on about their tables, ``spec.yaml`` as JSON; None where it
            was trained on a published set.
        seed: of the run.
    """

    module: torch.nn.Module
    spec: DataSpec
    facts: Mapping[str, Any]
    source: Opened
    scaling: Mapping[str, Any] = field(default_factory=dict)
    agreed: str | None = None
    seed: int = 0

    def write_with(self, to: Path, content: bytes) -> tuple[Path, Path]:
        """Write a file of the model, and beside it the facts as JSON; return both paths.

        Facts that are there already may stay if they are the same: of another form of the model.

        Raises:
            UsageError: one of them is there already, or cannot be written.
        """
        facts, mode = to.with_suffix(".json"), 0o600 if "client" in self.facts else 0o666
        said = (json.dumps(self.facts, indent=2, sort_keys=True) + "\n").encode()
        try:
            create(to, content, mode=mode)
        except OSError as error:
            raise _unwritten(to, error) from error
        try:
            if not (facts.is_file() and facts.read_bytes() == said):
                create(facts, said, mode=mode)
        except OSError as error:
            to.unlink()  # weights alone are no use: nobody knows what they belong to
            raise _unwritten(facts, error) from error
        return to, facts


def shared(
    view: RunView, name: str, checkpoint: bytes, agreed: Callable[[], str | None]
) -> TrainedModel:
    """Return the model that all clients share.

    Args:
        view: of the run folder.
        name: of the checkpoint: ``best`` on validation, or ``final``.
        checkpoint: its bytes; empty if there is none.
        agreed: returns what all sites agreed on about their tables, as JSON, or None; it is asked
            once the evidence is verified.

    Raises:
        EvidenceError: at the first step of ``audit verify`` that failed, but the report's own.
        UsageError: the run has no shared model.
    """
    for step in verify(view).steps:
        if step.status is Status.FAIL and step.name != "report":
            raise EvidenceError(step.name, f"{step.detail}; the model was not used")
    if not checkpoint or npz_digest(checkpoint) != view.weights.get(name):
        raise UsageError(
            "This run left no shared model.",
            why="each client has its own, or the run did not finish",
            fix="name a client whose key is here: --site, or run.model('client-1')",
        )
    with np.load(io.BytesIO(checkpoint), allow_pickle=False) as file:
        weights = {name: file[name] for name in file.files}.get("weights")
    plan = Case(view).plan
    spec, config = _spec(plan), (view.config_text or b"").decode("utf-8", "replace")
    if weights is None or weights.shape != (size_of(spec, config),):
        raise UsageError(
            f"What {plan.algorithm} shares is not a whole model.",
            why="clients keep the rest (their heads, their own layers) for themselves",
            fix="name a client whose key is here: --site, or run.model('client-1')",
        )
    model = ClientModel((np.asarray(weights, dtype=np.float32),))
    about = {} if (said := agreed()) is None else {"spec": said.encode()}
    opened = Opened("", model, Origin(spec, config, plan.digest), about, 0, 0)
    return of_all(opened, npz_digest(checkpoint))


def of_all(opened: Opened, digest: str = "") -> TrainedModel:
    """Return the model that all clients share, of one without a client.

    Args:
        opened: the model.
        digest: of the checkpoint; by default that of its weights.

    Raises:
        UsageError: it is not one that this program can build.
    """
    task, config = _task(opened.origin.spec, opened.origin.config)
    known = digest or weights_digest({"weights": opened.model.shared})
    return _made(
        task, opened, config, {"algorithm": config.algorithm.name, "weights_sha256": known}
    )


def size_of(spec: DataSpec, config: str) -> int:
    """Return how many weights a model has; raises UsageError for one that cannot be built."""
    with torch.device("meta"):  # sizes alone: whoever wrote the configuration chose them
        return int(_task(spec, config)[0].size)


def _spec(plan: Plan) -> DataSpec:
    try:
        lowest, highest = map(float, plan.data.scale or ("0", "0"))
        data = plan.data.model_dump(exclude={"scale", "edges"})
        return DataSpec(**data, clients=len(plan.clients), lowest=lowest, highest=highest)
    except (TypeError, ValueError) as error:
        raise UsageError("The run's plan describes no data.", why=str(error)[:300]) from error


def of_client(opened: Opened) -> TrainedModel:
    """Return a client's own model.

    Raises:
        UsageError: it is not one that this program can build.
    """
    task, config = _task(opened.origin.spec, opened.origin.config)
    about = dict(opened.about)
    pieces = {"weights": opened.model.shared}
    if opened.model.own is not None:
        pieces["personal"] = opened.model.own
    more = {
        "algorithm": config.algorithm.name,
        "client": opened.client,
        "site": about.get("site", opened.client),
        "weights_sha256": weights_digest(pieces),
        "data_sha256": about.get("data_sha256", ""),
        "user": about.get("user"),
        "after_rounds": _rounds(opened.number, config),
        "best_after_rounds": _rounds(opened.best, config),
    }
    more |= {name: about[name].tolist() for name in ("mean", "scale") if name in about}
    return _made(task, opened, config, more)


def _rounds(number: int, config: Config) -> int | None:
    """Return after how many rounds a score was taken, by its number; None for none."""
    before = config.evaluation.at == "downloaded"
    return number - before if number else None


def _called(spec: str | None) -> dict[str, Any]:
    """Return the names of features and classes, in order."""
    if spec is None:
        return {"feature_names": [], "class_names": []}
    agreed = OwnSpec.model_validate_json(spec)
    classes = agreed.label_columns if agreed.multilabel else agreed.labels
    return {"feature_names": list(agreed.feature_columns), "class_names": list(classes)}


def _task(spec: DataSpec, text: str) -> tuple[Any, Config]:
    config = Config.of_others(text)
    name, chosen = config.algorithm.name, config.model.name
    known = name in algorithm_names() if chosen is None else chosen in model_names(spec.task)
    if config.plugins and not known:
        raise UsageError(
            f"What this model is built as, a plug-in says ({', '.join(config.plugins)}).",
            why="nothing runs a plug-in because a run names it",
            fix="give your own copy: --plugin FILE, in Python run.model(plugins=[FILE]); "
            "its digest must be the plan's",
        )
    task = build_task(spec, config.model, preferred=preferred_model(name))
    if chosen is None or spec.task != "graph":
        return task, config
    if not hasattr(model_file(chosen, spec.task), "plain"):
        raise UsageError(
            f"The model {chosen!r} has no plain form.",
            why="its file has no function plain(module), which gives it in PyTorch's own layers",
            fix="add one, as the files of algorithms/nn/ have it, and run again: a plan holds the "
            "digest of the file as it was",
        )
    return task, config


def _made(task: Any, opened: Opened, config: Config, more: Mapping[str, Any]) -> TrainedModel:
    module, agreed = plain_model(task, opened.model), spec_of(opened)
    spec, settings = opened.origin.spec, config.model
    built = {"name": model_name(spec.task, settings, preferred_model(config.algorithm.name))}
    facts = {
        "task": spec.task,
        "data": spec.name,
        "synthetic": spec.synthetic,
        "features": spec.features,
        "scaling": config.data.features,
        "classes": spec.classes,
        "multilabel": spec.multilabel,
        "model": built | settings.model_dump(include={"hidden", "layers", "dropout", "options"}),
        "module": str(module),
        "takes": TAKES[spec.task],
        "edges": "both directions of each pair, no self-loops",
        "gives": "ratings" if spec.task == "rating" else "logits",
        "inductive": spec.task != "rating",
        "plan": opened.origin.plan,
        "tells": TELLS,
        **_called(agreed),
        **more,
    }
    scaling = {name: opened.about[name] for name in ("mean", "scale") if name in opened.about}
    return TrainedModel(module, spec, facts, opened, scaling, agreed, config.seed)


def _unwritten(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written.", why=str(error), fix="choose another --to")


# --- A trained model as ONNX, for programs without PyTorch ---
#
# Inputs are called like the module's, output ``logits`` or ``ratings``; numbers of nodes, edges,
# graphs and ratings are free. The file is checked against the module before it is handed over, on
# drawn inputs of two sizes.

ATOL = 1e-4
"""What two programs may differ by, times the largest output."""


class _OnGraph(torch.nn.Module):
    """Names the inputs, which PyG's `Sequential` takes by place."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        found: Tensor = self.module(x, edge_index)
        return found


class _OnGraphs(_OnGraph):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        found: Tensor = self.module(x, edge_index, batch)
        return found


class _OnRatings(_OnGraph):
    def forward(  # type: ignore[override]
        self, user: Tensor, item: Tensor, edge_index: Tensor, rating: Tensor
    ) -> Tensor:
        found: Tensor = self.module(user, item, edge_index, rating)
        return found


_NAMED = {"node": _OnGraph, "graph": _OnGraphs, "rating": _OnRatings}


def onnx_bytes(trained: TrainedModel) -> bytes:
    """Return the model as ONNX.

    Raises:
        UsageError: the exporter is not installed, or cannot write this model.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise UsageError(
            "ONNX files need packages that are not installed.",
            why=str(error),
            fix="pip install 'secure-fgl[onnx]', or export to an npz",
        ) from error
    task = trained.spec.task
    named = _NAMED[task](trained.module)
    names = str(trained.facts["takes"]).split(", ")
    given = _drawn(trained, 7)
    try:
        with _quiet():
            program = torch.onnx.export(
                named, given, dynamo=True, dynamic_shapes=_free(task), input_names=names,
                output_names=[str(trained.facts["gives"])], verbose=False,
            )  # fmt: skip
            content: bytes = program.model_proto.SerializeToString()  # type: ignore[union-attr]
    except Exception as error:  # whatever the exporter meets in a model that it does not know
        raise UsageError(
            "The exporter cannot write this model as ONNX.",
            why=str(error).splitlines()[0][:200] if str(error) else type(error).__name__,
            fix="export to an npz",
        ) from error
    session: Any = onnxruntime.InferenceSession(content)
    for inputs in (given, _drawn(trained, 12)):
        fed = {n: t.numpy() for n, t in zip(names, inputs, strict=True)}
        seen = session.run(None, {one.name: fed[one.name] for one in session.get_inputs()})[0]
        with torch.no_grad():
            expected = named(*inputs).numpy()
        if not np.allclose(seen, expected, rtol=0.0, atol=ATOL * max(1.0, np.abs(expected).max())):
            raise UsageError(
                "The ONNX file does not answer as the model does, and was not written.",
                fix="export to an npz",
            )
    return content


def _drawn(trained: TrainedModel, size: int) -> tuple[Tensor, ...]:
    """Return inputs of a size, drawn from a fixed seed."""
    rng, spec = np.random.default_rng(size), trained.spec
    if spec.task == "rating":
        pairs = np.stack([np.arange(size) % spec.users, np.arange(size) % spec.items])
        rating = rng.uniform(spec.lowest, spec.highest, size).astype(np.float32)
        user, item = (torch.from_numpy(a.astype(np.int64)) for a in pairs)
        known = torch.from_numpy(pairs[:, : size - 2].astype(np.int64))
        return user, item, known, torch.from_numpy(rating[: size - 2])
    x = torch.from_numpy(rng.standard_normal((size, spec.features)).astype(np.float32))
    ring = np.arange(size - 2)  # two nodes are alone
    next_ = (ring + 1) % len(ring)
    edges = torch.from_numpy(np.concatenate([[ring, next_], [next_, ring]], axis=1))
    if spec.task == "node":
        return x, edges
    return x, edges, torch.from_numpy((np.arange(size) >= size - 2).astype(np.int64))


def _free(task: str) -> tuple[dict[int, Any], ...]:
    from torch.export import Dim

    if task == "rating":
        asked, known = Dim("asked"), Dim("known")
        return {0: asked}, {0: asked}, {1: known}, {0: known}
    nodes, edges = Dim("nodes"), Dim("edges")
    shapes: tuple[dict[int, Any], ...] = ({0: nodes}, {1: edges})
    return shapes if task == "node" else (*shapes, {0: nodes})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress off the terminal."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
