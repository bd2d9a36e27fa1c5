"""Sums through the real sessions: whole runs on Cora under four policies, and one large round."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import paired_ratio
from benchmarks._rows import memory

POLICIES = ("masks", "he", "ckks", "unsafe_plaintext")


def whole_runs(data: str, rounds: int, repeats: int) -> dict[str, Any]:
    """Return wall_s of FedAvg on Cora under each policy, taken in turns, and the ratios.

    Args:
        data: folder of data sets.
        rounds: of each run.
        repeats: runs per policy.
    """
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    here = Path(__file__).resolve().parent.parent
    walls: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    models: set[str | None] = set()
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            for policy, seconds in walls.items():
                settings = [
                    f"policy={policy}",
                    f"data.root={data}",
                    f"algorithm.rounds={rounds}",
                    "transport.workers=1",  # times of one core, as in the tables
                ]
                config = Config.load(here / "examples" / "cora.yaml", settings)
                run = Federation.from_config(config).run(Path(folder) / f"{policy}-{turn}")
                seconds.append(run.result["wall_s"])
                models.add(run.model_sha256)
    found: dict[str, Any] = {"rounds": rounds, "repeats": repeats}
    for policy, seconds in walls.items():
        found[f"{policy}_s"] = statistics.median(seconds)
    for policy in POLICIES[:-1]:
        found[f"{policy}_over_clear"] = paired_ratio(walls, policy, POLICIES[-1])
    found["models"] = len(models)  # 1: all policies ended with the same model
    return found


class Drawn(Sequence[NDArray[np.float64]]):
    """Every client's vector, made when it is asked for: a thousand of them are not held at once."""

    def __init__(self, parameters: int, clients: int) -> None:
        self._parameters, self._clients = parameters, clients

    def __len__(self) -> int:
        return self._clients

    @overload
    def __getitem__(self, index: int) -> NDArray[np.float64]: ...

    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.float64]]: ...

    def __getitem__(self, index: int | slice) -> NDArray[np.float64] | list[NDArray[np.float64]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._clients))]
        if not 0 <= index < self._clients:
            raise IndexError(index)
        rng = np.random.default_rng([3, index])
        return rng.uniform(-0.4, 0.4, size=self._parameters)


def many(clients: int, parameters: int) -> dict[str, Any]:
    """Return time and peak memory of one round of `clients` clients under ``masks``.

    All sessions live in one process of their own; its whole memory counts, libraries and all.
    """
    command = [sys.executable, str(Path(__file__).resolve()), str(clients), str(parameters)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def one_round(clients: int, parameters: int) -> dict[str, Any]:
    """Play that round in this process. Raises ArithmeticError for a wrong mean."""
    from benchmarks.bench_he import constant
    from protocols.evidence.ledger import MemoryStore
    from protocols.plan.plan import DataPlan
    from protocols.plan.planning import make_plan
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.run.driver import Driver, Meter
    from secure_fgl.run.naming import client_names
    from secure_fgl.run.parties import Making, set_up
    from secure_fgl.transports.memory import MemoryTransport

    vectors: Any = Drawn(parameters, clients)
    # One round needs the secrets of one round: an epoch of fifty would be agreed on for nothing.
    policy = PrivacyPolicy.preset("masks").model_copy(update={"rekey_rounds": 1})
    algorithm, start = constant(parameters, vectors), time.perf_counter()
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    plan = make_plan(
        algorithm, policy, data=data, clients=client_names(clients), rounds=1, scheme=None
    )
    form = policy.admit(algorithm)
    sites = list(range(clients))
    parties = set_up(
        Making(plan, policy, form, sites, scheme=None, store=lambda name: MemoryStore(), seed=1)
    )
    driver = Driver(parties, MemoryTransport(parties.others), Meter())
    driver.start()
    ready = time.perf_counter()
    state = algorithm.init(np.random.default_rng(0))
    state = driver.play(form.round(state, driver.cohort), 1)
    end = time.perf_counter()
    mean = sum(vectors, start=np.zeros(parameters)) / clients
    error = float(np.abs(state.weights - mean).max())
    if not error < 1e-4:
        raise ArithmeticError(f"The mean of {clients} clients is off by {error:.3g}.")
    peak = memory("VmHWM")
    return {
        "clients": clients,
        "params": parameters,
        "set_up_s": ready - start,
        "round_s": end - ready,
        "max_abs_error": error,
        "peak_rss_gib": None if peak is None else peak / 2**30,
    }


if __name__ == "__main__":
    print(json.dumps(one_round(int(sys.argv[1]), int(sys.argv[2]))))
