"""The shared model of a finished run, as people take it away: a plain module, and two files.

Nothing of a run folder is used before its evidence was verified, and nothing is pickled: weights
are written as npz, one array for each entry of the module's ``state_dict``::

    arrays = np.load("model.npz", allow_pickle=False)
    module.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})

What a client keeps for itself (personal models, heads, vectors of users) is not in a run folder, so
it is not here either. What a model that is given away tells of the records that trained it is
measured by attacks (`secure-fgl audit attack`); noise is what bounds it.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from algorithms.tasks import DataSpec, Kind, Weights
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from protocols.errors import EvidenceError
from secure_fgl.catalogue import preferred_model
from secure_fgl.config import Config
from secure_fgl.data.kinds import build_task, model_name
from secure_fgl.errors import UsageError
from secure_fgl.run.model_digest import npz_bytes, npz_digest
from secure_fgl.store.files import create

__all__ = ["TrainedModel"]


class TrainedModel:
    """The model after the best round on validation.

    Args:
        view: of the run folder.
        checkpoint: bytes of ``checkpoints/best.npz``; None if there is none.

    Raises:
        EvidenceError: at the first step of ``audit verify`` that failed, but the report's own.
        UsageError: the run has no shared model, or one that has no plain form.
    """

    def __init__(self, view: RunView, checkpoint: bytes | None) -> None:
        for step in verify(view).steps:
            if step.status is Status.FAIL and step.name != "report":
                raise EvidenceError(step.name, f"{step.detail}; the model was not used")
        self._case, self._sha256 = Case(view), view.weights.get("best", "")
        if checkpoint is None or npz_digest(checkpoint) != self._sha256:
            raise UsageError(
                "This run left no shared model.",
                why="each client has its own, or the run did not finish",
            )
        with np.load(io.BytesIO(checkpoint), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        self._config = Config.of_others((view.config_text or b"").decode("utf-8", "replace"))
        self.module = self._built(arrays)

    def _built(self, arrays: dict[str, Weights]) -> torch.nn.Module:
        name, data = self._config.algorithm.name, self._case.plan.data
        if data.task not in ("node", "graph"):
            raise UsageError(
                f"A model of a {data.task} task has no plain form yet.",
                fix="checkpoints/best.npz holds its shared weights as one vector",
            )
        spec = DataSpec(**data.model_dump(), clients=len(self._case.plan.clients), multilabel=False)
        task: Any = build_task(spec, self._config.model, preferred=preferred_model(name))
        weights = arrays.get("weights")
        if weights is None or weights.shape != (task.size,):
            raise UsageError(
                f"What {name} shares is not a whole model.",
                why="clients keep the rest (their heads, their own layers) for themselves",
                fix="take a run of fed_avg, fed_prox, fed_gate, apfl or apfl_gate",
            )
        found: torch.nn.Module | None = task.plain(np.asarray(weights, dtype=np.float32))
        if found is None:
            raise UsageError("This model works on ego-graphs and has no plain form.")
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """What whoever uses the module must know: architecture, inputs, scaling, digests."""
        plan, model = self._case.plan, self._config.model
        preferred = preferred_model(self._config.algorithm.name)
        built = {"name": model_name(cast(Kind, plan.data.task), model, preferred)}
        return {
            "algorithm": plan.algorithm,
            "task": plan.data.task,
            "data": plan.data.name,
            "synthetic": plan.data.synthetic,
            "features": plan.data.features,
            "scaling": self._config.data.features,
            "classes": plan.data.classes,
            "model": built | model.model_dump(include={"hidden", "layers", "dropout"}),
            "module": str(self.module),
            "takes": "x, edge_index" if plan.data.task == "node" else "x, edge_index, batch",
            "edges": "both directions of each pair, no self-loops",
            "gives": "logits",
            "inductive": True,
            "plan": plan.digest,
            "weights_sha256": self._sha256,
        }

    def write(self, to: Path) -> tuple[Path, Path]:
        """Write the weights (npz), and beside them the facts as JSON; return both paths.

        Raises:
            UsageError: one of them is there already, or cannot be written.
        """
        facts = to.with_suffix(".json")
        arrays = {name: value.numpy() for name, value in self.module.state_dict().items()}
        try:
            create(to, npz_bytes(arrays))
        except OSError as error:
            raise _unwritten(to, error) from error
        try:
            create(facts, (json.dumps(self.facts, indent=2, sort_keys=True) + "\n").encode())
        except OSError as error:
            to.unlink()  # weights alone are no use: nobody knows what they belong to
            raise _unwritten(facts, error) from error
        return to, facts


def _unwritten(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written.", why=str(error), fix="choose another --to")
