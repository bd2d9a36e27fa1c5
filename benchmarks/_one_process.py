"""Whole runs in one process and without the message layer, scored as runs are after training.

The rounds, the clients' randomness and the rule that picks a round are those of a run. Totals are
exact where a run adds whole numbers, so figures may differ from a run's in a node or two; a test
holds the two together. It takes a third of a run's time, and any cluster can be summed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks._clusters import played
from benchmarks.personalised import Settings, nested

CLEAR = "none: computed in one process"


def measure(facts: Settings, settings: Settings, data: str) -> dict[str, Any]:
    """Run one row with one seed; the setting `least` is the smallest part of a cut."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from secure_fgl.config import Config

    began, chosen = time.perf_counter(), dict(settings)
    least = chosen.pop("least", 1)
    document = nested({**facts, "policy": "unsafe_plaintext"}, chosen, data)
    try:
        found = in_one_process(Config.parse(document), least)
    except ArithmeticError as error:  # a client's numbers were no longer finite
        found = {"metrics": {}, "diverged": str(error)}
    taken = round(time.perf_counter() - began, 1)
    return {**facts, "policy": CLEAR, "references": {}, **found, "wall_s": taken}


def in_one_process(config: Any, least: int = 1) -> dict[str, Any]:
    """Return metrics of the best validation round, and how the clients fell into clusters.

    Args:
        config: of a run whose clients are scored after their training (`evaluation.at: trained`).
        least: clients of the smallest cluster that may be cut off.

    Raises:
        ValueError: another score is asked for.
    """
    from protocols.rounds import Cohort
    from secure_fgl.federation import Federation
    from secure_fgl.run.driver import one_thread_and_deterministic
    from secure_fgl.run.naming import learning_seed

    if config.evaluation.at != "trained":
        raise ValueError("clients are scored after training here; set evaluation.at: trained")
    federation = Federation.from_config(config)
    task, algorithm = federation.build()
    prepared = federation.prepare()
    prepared.load()
    sites = {f"client-{place:03d}": site for place, site in enumerate(prepared.sites)}
    form = algorithm.forms[0].plain or algorithm.forms[0]
    cohort = Cohort(sorted(sites), needed=max(2 * least, 2))
    best, metrics, compared = -np.inf, dict[str, Any](), 0
    sizes: list[list[Any]] = []
    with one_thread_and_deterministic():
        state = algorithm.init(np.random.default_rng(learning_seed(config.seed, "init")))
        for number in range(1, config.algorithm.rounds + 1):
            state, asked = played(form, form.round(state, cohort), sites, least)
            compared += asked
            now = sorted((part.size for part in cohort.parts), reverse=True)
            if not sizes or sizes[-1][1] != now:
                sizes.append([number, now])
            pooled = _scored(task, algorithm, sites)
            if (merit := task.scoring.merit(pooled) or -np.inf) > best:
                best = merit
                metrics = {**task.scoring.read(pooled), "best_round": number}
    return {"metrics": metrics, "compared": compared, "sizes": sizes}


def _scored(task: Any, algorithm: Any, sites: Mapping[str, Any]) -> Any:
    from algorithms.tasks import predictions
    from algorithms.tasks.evaluation import total

    models = ((site, algorithm.model(site, None)) for site in sites.values())
    return total([task.score(predictions(task, model, site), site) for site, model in models])
