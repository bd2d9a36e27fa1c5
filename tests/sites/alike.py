"""What sites learnt beside what the run in memory learnt."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocols.evidence.ledger import read_lines
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.store.client_models import ClientModels, Opened
from secure_fgl.store.finished_run import Run
from tests.sites.stage import Parties, side

LEARNT = ("form", "lost_rounds", "metrics", "model_sha256", "rounds")
CARRIED = ("backend", "bytes_down", "bytes_up", "data", "exchanges")


def check_result(parties: Parties, memory: Run, keys: tuple[str, ...] = LEARNT + CARRIED) -> None:
    """Hold the aggregator's result to memory's; the model's digest is one, if asked for."""
    result = parties.result()
    assert {key: result[key] for key in keys} == {key: memory.result[key] for key in keys}


def check_models(parties: Parties, memory: Run) -> None:
    """Hold each client's own model, in its folder, to the one that memory kept of it."""
    kept, names = memory.client_models, parties.charter.plan.clients
    assert kept.clients() == sorted(names)
    _, checkpoint = memory.checkpoint() if memory.result["model_sha256"] else ("", b"")
    for folder in parties.folders.values():
        models = ClientModels(parties.charter.run, side(folder), folder / "keys")
        assert models.openable() == ([folder.name] if folder.name in names else [])
        if folder.name in names:
            ours, theirs = models.open(folder.name), kept.open(folder.name, checkpoint)
            assert plain(ours) == plain(theirs)


def plain(opened: Opened) -> Any:
    """Return what a client predicts with, in values that can be compared."""
    model = opened.model
    vectors = flat([model.shared, model.own]), model.alpha, flat(model.beside)
    return vectors, flat(opened.about), opened.number


def flat(value: Any) -> Any:
    """Return nested arrays as bytes with their types and shapes."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if hasattr(value, "items"):
        return {key: flat(one) for key, one in value.items()}
    return [flat(one) for one in value] if isinstance(value, (list, tuple)) else value


def mixtures(parties: Parties) -> list[int]:
    """Return how many mixtures each client that mixes has, as ledgers say."""
    found = []
    for site, folder in sorted(parties.folders.items()):
        data = (side(folder) / "ledger" / f"{folder.name}.jsonl").read_bytes()
        entries = [entry for entry, _ in read_lines(data) if site != AGGREGATOR_NAME]
        found += [entry["mixtures"] for entry in entries if entry["kind"] == "mix"]
    return found
