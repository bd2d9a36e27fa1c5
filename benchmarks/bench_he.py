"""What the message layer costs beside the encryption it carries.

(a) bare: n clients' integers are packed, encrypted, added, decrypted and unpacked with `crypto`,
    nothing else: integers in, their total out. "bare from reals" also rounds the vectors first;
    "bare packed" leaves packing and unpacking out, the strictest reading.
(b) layer: the same vectors as one whole round without training: aggregator's Ask, clip, rounding,
    packing, encryption, HPKE, signatures, plan checks, ledgers on disk, blind opening, decoding.
(c) clear: the round of (b) under `unsafe_plaintext`.

Ratios within one run; nothing is asserted. Whole runs with training: ``aggregation.py --train``.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import interleaved, medians, paired_ratio, parser, show
from crypto.homomorphic.he import Scheme
from crypto.homomorphic.he import scheme as find_scheme
from crypto.quantiser import Grid, Packing
from crypto.samplers import Stream, entropy
from protocols.evidence.ledger import MemoryStore, Store
from protocols.forms import Algorithm, Form
from protocols.messages import ReleasedMessage, SumMessage, Vector, count, real
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

CORA_PARAMETERS = 184_391  # a two-layer GCN on Cora: 1433 x 128 + 128 + 128 x 7 + 7
CLIENTS = 5
BITS = 16


class Start(ReleasedMessage):
    """The global model, as FedAvg hands it out."""

    weights: Vector = real("d", unit="weight", meaning="the global model", wire="f4")


class Update(SumMessage):
    """What FedAvg sends, without the training."""

    delta: Vector = real("d", unit="weight x record", meaning="a constant", scale="records")
    count: int = count(unit="record", meaning="1")


def constant(d: int, vectors: list[np.ndarray[Any, Any]]) -> Algorithm[Start]:
    """Return an algorithm whose site number i answers with `vectors[i]`."""

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=np.zeros(d, np.float32))

    def answer(site: int, given: Start) -> Update:
        return Update(delta=vectors[site], count=1)

    def model(site: object, given: object) -> None:
        return None

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=Update)
        total = reply.total(Update)
        return Start(weights=(total.delta / total.count).astype(np.float32))

    form = Form.of("constant", round, answers={Start: answer})
    return Algorithm("constant", "none", init, model, (form,), {"d": d})


def bare(bfv: Scheme, d: int, clients: int, *, start: str = "integers") -> Callable[[], None]:
    """Return (a), from ``reals``, ``integers`` or ``packed`` coefficients on."""
    public, secret = bfv.keygen()
    packing, grid = Packing(BITS, clients, bfv.plain_bits), Grid(0.5, BITS)
    rng = np.random.default_rng(3)
    vectors = [rng.uniform(-0.4, 0.4, size=d) for _ in range(clients)]

    def integers(vector: np.ndarray[Any, Any]) -> Any:
        levels = grid.quantise(vector, Stream(entropy(32))) + grid.levels
        return levels.astype(np.uint64)

    ready = [integers(vector) for vector in vectors]
    packed = [packing.pack(rounded) for rounded in ready]

    def coefficients(number: int) -> Any:
        if start == "packed":
            return packed[number]
        return packing.pack(integers(vectors[number]) if start == "reals" else ready[number])

    def go() -> None:
        total = bfv.accumulator(public)
        for number in range(clients):
            total.add(bfv.encrypt(public, coefficients(number)))
        opened = bfv.decrypt(secret, total.to_bytes())
        if start != "packed":
            packing.unpack(opened[: packing.coefficients(d)], d)

    return go


def layer(
    policy_name: str, d: int, clients: int, rounds: int, folder: Path | None
) -> Callable[[], None]:
    """Return (b) or (c): one call is one round through all sessions; at most `rounds` calls."""
    policy = PrivacyPolicy.preset(policy_name)
    rng = np.random.default_rng(3)
    vectors = [rng.uniform(-0.4, 0.4, size=d) for _ in range(clients)]
    algorithm = constant(d, vectors)
    scheme = find_scheme() if policy_name == "he" else None
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    plan = make_plan(
        algorithm, policy, data=data, clients=client_names(clients), rounds=rounds, scheme=scheme
    )
    form = policy.admit(algorithm)

    def store(name: str) -> Store:
        if folder is None:
            return MemoryStore()
        return FileStore(Folder(folder / policy_name), f"{name}.jsonl")

    parties = set_up(
        Making(plan, policy, form, list(range(clients)), scheme=scheme, store=store, seed=1)
    )
    driver = Driver(parties, MemoryTransport(parties.others), Meter())
    driver.start()
    state, number = algorithm.init(rng), 0

    def go() -> None:
        nonlocal state, number
        number += 1
        state = driver.play(form.round(state, driver.cohort), number)

    return go


def _adds(seconds: dict[str, list[float]], base: str) -> float:
    rows = zip(seconds["layer"], seconds["clear"], seconds[base], strict=True)
    return statistics.median((layer - clear) / bare for layer, clear, bare in rows)


def rounds_without_training(args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of (a), (b) and (c)."""
    bfv, rounds = find_scheme(), args.repeats + 2
    with tempfile.TemporaryDirectory() as name:
        folder = None if args.ledgers == "memory" else Path(name)
        parts = {
            "bare": bare(bfv, args.parameters, args.clients),
            "bare_from_reals": bare(bfv, args.parameters, args.clients, start="reals"),
            "bare_packed": bare(bfv, args.parameters, args.clients, start="packed"),
            "layer": layer("he", args.parameters, args.clients, rounds, folder),
            "clear": layer("unsafe_plaintext", args.parameters, args.clients, rounds, folder),
        }
        seconds = interleaved(parts, args.repeats)
        if args.profile:
            profile = cProfile.Profile()
            profile.runcall(parts["layer"])
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    found = medians(seconds)
    return {
        "scheme": bfv.name,
        "parameters": args.parameters,
        "clients": args.clients,
        "repeats": args.repeats,
        "ledgers": args.ledgers,
        **{f"{part}_s": value for part, value in found.items()},
        "layer_over_bare": paired_ratio(seconds, "layer", "bare"),
        "layer_over_bare_from_reals": paired_ratio(seconds, "layer", "bare_from_reals"),
        "he_adds_over_bare": _adds(seconds, "bare"),
        "he_adds_over_bare_packed": _adds(seconds, "bare_packed"),
        "layer_over_clear": paired_ratio(seconds, "layer", "clear"),
    }


def main() -> int:
    """Measure and print."""
    options = parser("The message layer beside bare encryption.", repeats=7)
    options.add_argument("--clients", type=int, default=CLIENTS)
    options.add_argument("--parameters", type=int, default=CORA_PARAMETERS)
    options.add_argument(
        "--ledgers",
        choices=("disk", "memory"),
        default="disk",
        help="memory leaves the disk's fsync out, which is most of the noise on a busy machine",
    )
    options.add_argument("--profile", action="store_true", help="one more round under cProfile")
    args = options.parse_args()
    show(rounds_without_training(args), args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
