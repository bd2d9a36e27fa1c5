"""A trained model as ONNX, for programs without PyTorch.

Inputs are called like the module's, output ``logits`` or ``ratings``; numbers of nodes, edges,
graphs and ratings are free. The file is checked against the module before it is handed over, on
drawn inputs of two sizes.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from secure_fgl.errors import UsageError
from secure_fgl.store.trained_model import TrainedModel

__all__ = ["onnx_bytes"]

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
