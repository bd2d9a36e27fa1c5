"""What it costs a round that clients compute models themselves (ADR 0029).

One round without training, through all sessions: under `he` and `masks`, with the policy's
``models: recomputed`` and ``as_sent``, in turns. Processor time of all parties in one process; the
rows of the check, which all clients of a process share, are made anew for each of them.

Ratios within one run; nothing is asserted.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import medians, paired_ratio, parser, show
from benchmarks.bench_he import CORA_PARAMETERS, constant
from crypto import sum_check
from crypto.homomorphic.he import scheme as find_scheme
from protocols.evidence.ledger import MemoryStore
from protocols.plan.plan import DataPlan
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.naming import client_names
from secure_fgl.run.parties import Making, set_up
from secure_fgl.transports.memory import MemoryTransport

KEPT = sum_check._rows.__wrapped__


def rounds_of(
    policy_name: str, models: str, d: int, clients: int, rounds: int
) -> tuple[Callable[[], None], Meter]:
    """Return what plays one round at a call, and what counts its bytes."""
    policy = PrivacyPolicy.preset(policy_name).model_copy(
        update={"models": models, "rekey_rounds": rounds}
    )
    rng = np.random.default_rng(3)
    algorithm = constant(d, [rng.uniform(-0.4, 0.4, size=d) for _ in range(clients)])
    form = algorithm.forms[0].moved_by_totals(reach=1.0)
    algorithm = replace(algorithm, forms=(form,))
    scheme = find_scheme() if policy_name == "he" else None
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    facts: dict[str, Any] = {"data": data, "clients": client_names(clients), "rounds": rounds}
    plan = make_plan(algorithm, policy, scheme=scheme, **facts)
    state, number = algorithm.init(rng), 0
    form = replace(policy.admit(algorithm), start=state)
    sites, meter = list(range(clients)), Meter()
    parties = set_up(
        Making(plan, policy, form, sites, scheme=scheme, store=lambda _: MemoryStore(), seed=1)
    )
    driver = Driver(parties, MemoryTransport(parties.others), meter)
    driver.start()

    def go() -> None:
        nonlocal state, number
        number += 1
        state = driver.play(form.round(state, driver.cohort), number)

    return go, meter


def main() -> int:
    """Measure and print."""
    options = parser("Models that clients compute themselves.", repeats=9)
    options.add_argument("--clients", type=int, default=10)
    options.add_argument("--parameters", type=int, default=CORA_PARAMETERS)
    args = options.parse_args()
    sum_check._rows = KEPT  # type: ignore[assignment]
    found: dict[str, Any] = {"clients": args.clients, "parameters": args.parameters}
    for policy in ("he", "masks"):
        settings = policy, args.parameters, args.clients, args.repeats + 1
        made = {
            how: rounds_of(settings[0], how, *settings[1:]) for how in ("recomputed", "as_sent")
        }
        seconds: dict[str, list[float]] = {how: [] for how in made}
        downs: dict[str, int] = {}
        for turn in range(args.repeats + 1):
            for how, (go, meter) in made.items():
                before, start = meter.down, time.process_time()
                go()
                gc.collect()
                if turn:  # the first warms up
                    seconds[how].append(time.process_time() - start)
                    downs[how] = meter.down - before
        for how, value in medians(seconds).items():
            found[f"{policy}_{how}_cpu_s"] = value
        found[f"{policy}_cpu_ratio"] = paired_ratio(seconds, "recomputed", "as_sent")
        found[f"{policy}_down_ratio"] = downs["recomputed"] / downs["as_sent"]
    show(found, args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
