"""What a finished run ends with: its result, references beside it, and the report."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from typing import Any, Protocol

from algorithms.tasks import Site, Task
from algorithms.tasks.evaluation import Tracked, released
from audits.evidence.run_files import read_result, result_digest
from crypto.homomorphic.he import Scheme
from protocols.forms import Algorithm
from protocols.messages import Array
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roster import weights_digest, weights_of
from secure_fgl.config import Config
from secure_fgl.data import Dataset, Masks
from secure_fgl.devices import chosen
from secure_fgl.run.driver import Meter
from secure_fgl.run.parties import bare_backend
from secure_fgl.run.reference import Bystander
from secure_fgl.store.finished_run import FORMATS, NOT_JUDGED, Run
from secure_fgl.store.run_folder import RunFolder

__all__ = ["Outcome", "Prepared", "arrays_of", "finish", "keep_model", "seal"]


@dataclass
class Outcome:
    """What a training loop leaves.

    Attributes:
        tracked: the state with its scores.
        meter: bytes, exchanges and times.
        after: per score, after how many rounds the scored state was.
        lost: rounds that were skipped because too many clients vanished.
        kept: digests of models of single rounds, by file name in ``checkpoints/``.
        wall: seconds of all rounds.
        peak: KiB of memory that the largest of other processes took.
        workers: how many there were.
        result: what ``result.json`` holds, but for the verdict; made by `seal`.
        failed: why no reference could be found; None if they were.
    """

    tracked: Tracked[Any]
    meter: Meter
    after: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    wall: float = 0.0
    peak: int = 0
    workers: int = 0
    result: dict[str, Any] = field(default_factory=dict)
    failed: Exception | None = None

    def keep(self, folder: RunFolder, number: int, every: int) -> None:
        """Write the released model after round `number` if it is one of every `every` rounds."""
        if every and number % every == 0:
            name = f"round-{number}"
            if digest := keep_model(folder, name, self.tracked.state):
                self.kept[name] = digest


class Prepared(Protocol):
    """What the result says of a `secure_fgl.run.simulation.Preparation`."""

    config: Config
    policy: PrivacyPolicy
    plan: Plan
    task: Task
    algorithm: Algorithm[Any]
    scheme: Scheme | None
    sites: list[Site]
    whole: tuple[Dataset, Masks] | None

    def metrics(self, tracked: Tracked[Any], index: int) -> dict[str, Any]:
        """Return the cohort's metrics of one score."""

    def leave(self, folder: RunFolder, outcome: Outcome) -> dict[str, str]:
        """Write the models; return their digests, and that of the metrics."""


def seal(prepared: Prepared, folder: RunFolder, outcome: Outcome, ended: bool) -> dict[str, str]:
    """Write models and result; return the digests that the aggregator's ledger ends with.

    References are of the result, so they come before the ledger's end. Where it `ended` before a
    kill, the result that it names stands.
    """
    left = prepared.leave(folder, outcome)
    outcome.result = read_result(folder.bytes("result.json")) if ended else {}
    if not outcome.result:
        outcome.result = _result(prepared, folder, outcome)
        try:
            outcome.result |= _references(prepared, outcome)
        except Exception as error:  # a run without references is a run; `finish` raises it
            outcome.failed = error
        folder.document("result.json", {**outcome.result, "verdict": NOT_JUDGED})
    return {**left, "document": result_digest(outcome.result)}


def finish(prepared: Prepared, folder: RunFolder, outcome: Outcome) -> Run:
    """Judge the run, and write what the machine took and the report."""
    from audits.evidence.steps import Case, run_checks
    from audits.evidence.verify import checks_of

    if outcome.failed is not None:
        raise outcome.failed
    peak = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, outcome.peak)
    result = {
        **outcome.result,
        "wall_s": round(outcome.wall, 3),
        "protect_s": round(outcome.wall - outcome.meter.learning, 3),
        "peak_mb": round(peak / 1024, 1),
    }
    folder.document("result.json", {**result, "verdict": NOT_JUDGED})
    run = Run(folder.path)
    judged = Case(run.view())
    result["verdict"] = run_checks(judged, checks_of(judged)).verdict
    folder.document("result.json", result)
    run.report(FORMATS, after=judged)
    return run


def _result(prepared: Prepared, folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    tracked, meter = outcome.tracked, outcome.meter
    final = arrays_of(tracked.state)
    return {
        "run_dir": str(folder.path),
        "algorithm": prepared.plan.algorithm,
        "form": prepared.plan.form,
        "policy": prepared.policy.name,
        "backend": prepared.scheme.name if prepared.scheme else bare_backend(prepared.policy),
        "rounds": prepared.config.algorithm.rounds,
        "clients": len(prepared.sites),
        "device": chosen(prepared.config),
        "answers": "isolated" if prepared.config.isolated else "in the clients' own process",
        "data": {
            "name": prepared.plan.data.name,
            "task": prepared.plan.data.task,
            "synthetic": prepared.plan.data.synthetic,
        },
        "metrics": {
            **prepared.metrics(tracked, tracked.best),
            "best_round": outcome.after[tracked.best] if outcome.after else None,
        },
        "headline": prepared.task.scoring.names[0],
        "references": {},
        "bytes_up": meter.up,
        "bytes_down": meter.down,
        "exchanges": meter.exchanges,
        "lost_rounds": outcome.lost,
        "model_sha256": weights_digest(final) if final else None,
    }


def _references(prepared: Prepared, outcome: Outcome) -> dict[str, Any]:
    tracked = outcome.tracked
    bystander = Bystander(prepared.task, prepared.sites, prepared.whole, prepared.config)
    seen = bystander.references()
    if not tracked.scores and (model := released(tracked.state)) is not None:
        seen["released_model"] = bystander.look(prepared.algorithm, model)
    return {
        "references": seen,
        "not_computed": bystander.not_computed,
        "test_records": bystander.test_records(),
        "test_commonest": bystander.test_commonest(),
        "stood": bystander.stood(outcome.after, lambda place: prepared.metrics(tracked, place)),
    }


def keep_model(folder: RunFolder, name: str, state: Any) -> str:
    """Write a state's released models as ``checkpoints/<name>.npz``.

    Returns:
        The digest of their arrays; empty, and nothing is written, where there are none.
    """
    if not (arrays := arrays_of(state)):
        return ""
    folder.arrays(f"checkpoints/{name}.npz", arrays)
    return weights_digest(arrays)


def arrays_of(state: Any) -> dict[str, Array]:
    """Return the weights of a state's released models by name; none where there are none.

    Where clusters have models of their own, a name begins with the cluster's number.
    """
    if (model := released(state)) is not None:
        return weights_of(model)
    clusters = enumerate(getattr(state, "models", ()), 1)
    return {
        f"cluster_{number}_{name}": values
        for number, (_, model) in clusters
        for name, values in weights_of(model).items()
    }
