"""One protected round of FED-PUB beside the operations it carries, and beside its twin in clear.

(a) bare: K models are rounded, packed and encrypted, K portraits normalised and encrypted; every
    pair's masked product is formed and opened; K blinded rows are combined, opened and unblinded.
    Nothing else: `crypto` alone, without a witness.
(b) bare witnessed: (a), and all products and rows computed a second time.
(c) layer: the same vectors as one whole round through sessions, gateway, witness, ledgers, without
    training.
(d) clear: the round of (c) under `unsafe_plaintext`.

`--train DATA` adds whole runs of examples/fed_pub_cora.yaml with ten clients. `--many K` adds the
peak memory of one protected round of K clients, all parties in one process of their own. Ratios
within one run; nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from algorithms.fed_pub import Go, Model, Portrait, shares
from benchmarks._measure import interleaved, medians, paired_ratio, parser, show
from benchmarks._rows import memory
from crypto.homomorphic.similarity import similarity
from crypto.homomorphic.weighted import TOTAL, flatten, weighted
from crypto.quantiser import Grid, Packing
from crypto.samplers import Stream, entropy
from protocols.evidence.ledger import MemoryStore, Store
from protocols.forms import Algorithm, Form
from protocols.plan.plan import DataPlan
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort, Round
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.naming import client_names
from secure_fgl.run.parties import Making, set_up
from secure_fgl.store.files import Folder
from secure_fgl.store.run_folder import FileStore
from secure_fgl.transports.memory import MemoryTransport

PARAMETERS = 200_967  # FED-PUB's model on Cora: two GCN layers of 128 and a linear classifier
WIDTH = 128
TAU = 3.0
BITS = 15


def vectors(d: int, clients: int) -> tuple[list[Any], list[Any]]:
    """Return models (d,) and portraits (128,) of clients that have something in common."""
    rng = np.random.default_rng(3)
    models = [rng.uniform(-0.4, 0.4, size=d).astype(np.float32) for _ in range(clients)]
    common = rng.standard_normal(WIDTH)
    return models, [common + rng.standard_normal(WIDTH) for _ in range(clients)]


def constant(d: int, clients: int, top: int | None) -> Algorithm[Go]:
    """Return FED-PUB whose site number i neither trains nor remembers, and says always the same."""
    models, portraits = vectors(d, clients)

    def train(site: int, given: Go) -> tuple[Model, Portrait]:
        return Model(weights=models[site]), Portrait(embedding=portraits[site])

    def receive(site: int, given: Model) -> None:
        if not np.isfinite(given.weights).all():
            raise ArithmeticError("a row is not finite")

    def round(state: Go, cohort: Cohort) -> Round[Go]:
        reply = yield Ask(cohort, given=state, back=(Model, Portrait))
        alpha = shares(reply.similarity(Portrait), TAU, top)
        yield Ask(cohort, given=reply.weighted(Model, alpha))
        return Go(step=state.step + 1, seed=0)

    form = Form.of("constant", round, answers={Go: train, Model: receive})
    return Algorithm(
        "constant",
        "none",
        lambda rng: Go(step=0, seed=0),
        lambda site, given: np.zeros((0, 0), np.float32),
        (form,),
        {"d": d, "p": WIDTH},
    )


def bare(d: int, clients: int, *, witnessed: bool = False) -> Callable[[], None]:
    """Return (a) or (b)."""
    ring, cosines = weighted(), similarity()
    public, secret = ring.keygen()
    shown, reader = cosines.keygen()
    packing, grid = Packing(BITS, TOTAL, ring.plain_bits), Grid(4.0, BITS)
    models, portraits = vectors(d, clients)

    def evaluate(bodies: list[bytes], units: list[bytes], weights: Any, seeds: list[bytes]) -> Any:
        operands = [cosines.operand(upload) for upload in units]
        pairs = itertools.combinations_with_replacement(operands, 2)
        products = [cosines.product(shown, *pair, entropy(32)) for pair in pairs]
        return products, ring.combine(public, bodies, weights, seeds)

    def go() -> None:
        levels = [grid.quantise(m, Stream(entropy(32))) + grid.levels for m in models]
        bodies = [ring.encrypt(public, packing.pack(row.astype(np.uint64))) for row in levels]
        units = [cosines.upload(shown, portrait) for portrait in portraits]
        seeds = [entropy(32) for _ in range(clients)]
        weights = flatten(shares(np.corrcoef(portraits), TAU))
        for _ in range(2 if witnessed else 1):
            products, rows = evaluate(bodies, units, weights, seeds)
        for product in products:
            cosines.cosine(reader, product)
        for row, seed in zip(rows, seeds, strict=True):
            opened = ring.decrypt(secret, row)
            plain = ring.subtract(opened, ring.blind(seed, opened.size))
            packing.unpack(plain[: packing.coefficients(d)], d)

    return go


def layer(
    policy_name: str, d: int, clients: int, rounds: int, folder: Path | None, top: int | None = None
) -> Callable[[], None]:
    """Return (c) or (d): one call is one round through all sessions; at most `rounds` calls."""
    policy = PrivacyPolicy.preset(policy_name).model_copy(update={"capture": None})
    algorithm = constant(d, clients, top)
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    plan = make_plan(
        algorithm, policy, data=data, clients=client_names(clients), rounds=rounds, scheme=None
    )

    def store(name: str) -> Store:
        return FileStore(Folder(folder / policy_name), f"{name}.jsonl") if folder else MemoryStore()

    form = policy.admit(algorithm)
    sites = list(range(clients))
    parties = set_up(Making(plan, policy, form, sites, scheme=None, store=store, seed=1))
    driver = Driver(parties, MemoryTransport(parties.others), Meter())
    driver.start()
    state, number = algorithm.init(np.random.default_rng(0)), 0

    def go() -> None:
        nonlocal state, number
        number += 1
        state = driver.play(form.round(state, driver.cohort), number)

    return go


def rounds_without_training(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of (a) to (d)."""
    d, clients, rounds = args.parameters, args.clients, args.repeats + 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = {
            "bare": bare(d, clients),
            "bare_witnessed": bare(d, clients, witnessed=True),
            "layer": layer("masks", d, clients, rounds, folder),
            "clear": layer("unsafe_plaintext", d, clients, rounds, folder),
        }
        seconds = interleaved(parts, args.repeats)
    return {
        "parameters": d,
        "clients": clients,
        "repeats": args.repeats,
        **{f"{part}_s": value for part, value in medians(seconds).items()},
        "layer_over_bare": paired_ratio(seconds, "layer", "bare"),
        "layer_over_bare_witnessed": paired_ratio(seconds, "layer", "bare_witnessed"),
        "layer_over_clear": paired_ratio(seconds, "layer", "clear"),
    }


def whole_runs(data: str, rounds: int, repeats: int) -> dict[str, Any]:
    """Return the ratio of wall times of whole runs with ten clients: protected over in clear."""
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    example = Path(__file__).resolve().parent.parent / "examples" / "fed_pub_cora.yaml"
    walls: dict[str, list[float]] = {"pilot": [], "unsafe_plaintext": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            for policy, seconds in walls.items():
                settings = [
                    f"policy={policy}",
                    f"data.root={data}",
                    f"algorithm.rounds={rounds}",
                    "data.partition.clients=10",
                    "transport.workers=1",  # times of one core, as in the tables
                ]
                config = Config.load(example, settings)
                run = Federation.from_config(config).run(Path(folder) / f"{policy}-{turn}")
                seconds.append(run.result["wall_s"])
    found = medians(walls)
    return {
        "train_rounds": rounds,
        "train_pilot_s": found["pilot"],
        "train_clear_s": found["unsafe_plaintext"],
        "train_pilot_over_clear": paired_ratio(walls, "pilot", "unsafe_plaintext"),
    }


def one_round(clients: int, d: int, top: int | None) -> dict[str, Any]:
    """Play one protected round in this process; return its seconds and the peak memory."""
    go = layer("masks", d, clients, 1, None, top)
    start = time.perf_counter()
    go()
    seconds, peak = time.perf_counter() - start, memory("VmHWM")
    found = {"many_clients": clients, "many_top": top, "many_round_s": seconds}
    return {**found, "many_peak_gib": None if peak is None else peak / 2**30}


def many(clients: int, d: int, top: int | None) -> dict[str, Any]:
    """Return `one_round` of a process of its own; its whole memory counts, libraries and all."""
    here = str(Path(__file__).resolve())
    command = [sys.executable, here, "--one", str(clients), "--parameters", str(d)]
    command += ["--top", str(top)] if top else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure and print."""
    options = parser("A protected round of FED-PUB beside its bare operations.", repeats=3)
    options.add_argument("--clients", type=int, default=10)
    options.add_argument("--parameters", type=int, default=PARAMETERS)
    options.add_argument("--train", metavar="DATA", help="folder of data sets: adds whole runs")
    options.add_argument("--rounds", type=int, default=10, help="of each whole run")
    options.add_argument("--many", type=int, help="adds the peak memory with so many clients")
    options.add_argument("--top", type=int, help="with --many: mix so many others only")
    options.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        print(json.dumps(one_round(args.one, args.parameters, args.top)))
        return 0
    found = rounds_without_training(args)
    if args.train:
        found.update(whole_runs(args.train, args.rounds, args.repeats))
    if args.many:
        found.update(many(args.many, args.parameters, args.top))
    show(found, args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
