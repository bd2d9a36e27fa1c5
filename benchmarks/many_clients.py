"""What one round of many one-user clients costs, beside its twin in clear.

    python benchmarks/many_clients.py [--clients 50 200 943] [--parameters 107777] [--rounds 2]

Every client's "training" hands out a ready vector as long as ML-100K's item table (1,682 x 64) and
a few weights more; it is timed and left out. Each row is a process of its own, so that its peak
memory is its own. Seconds are of the processor (all parties share one), the median of the rounds:

    round_ms      one client's share of a round, the aggregator's work for it included
    keys_ms       the same of an epoch's keys, agreed on once in `rekey_rounds` rounds
    crypto_ms     of a round: signatures, seals, masks, shares, rounding and hashes of long bodies
    session_ms    of a round: what is neither that nor training
    peak_gib      memory of the whole process, libraries and all

`masks_over_clear` compares two rows of one client number. `--profile` prints where a round under
the first policy spends its time, by kind of work.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import hashlib
import json
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._rows import memory
from benchmarks._sessions import Drawn
from benchmarks.bench_he import constant
from crypto.hpke import OpeningKey, SealingKey
from crypto.masks import MaskSum
from crypto.signatures import SigningKey, VerifyKey
from protocols import gateway, pairs, unmasking
from protocols.forms import Form
from protocols.ledger import MemoryStore, Store
from protocols.plan import DataPlan
from protocols.planning import make_plan
from protocols.policy import PrivacyPolicy
from protocols.sums import SumLayout
from secure_fgl.driving import Driver, Meter
from secure_fgl.parties import Making, client_names, set_up
from secure_fgl.runs import FileStore
from secure_fgl.transports.memory import MemoryTransport

ITEM_TABLE = 1682 * 64 + 129
POLICIES = ("unsafe_plaintext", "masks")
_CRYPTO: tuple[tuple[Any, str], ...] = (
    (hashlib, "sha256"),
    (VerifyKey, "verify_raw"),
    (SigningKey, "sign"),
    (SealingKey, "seal"),
    (OpeningKey, "open"),
    (gateway, "masked"),
    (SumLayout, "_round"),
    (MaskSum, "add"),
    (MaskSum, "take"),
    (unmasking, "combine"),
    (pairs, "split"),
    (pairs, "derive"),
    (pairs, "lock"),
)
"""Owner and name of what counts as cryptography; hashing inside the others counts once, there."""
_KINDS = (
    ("fsync and files", ("fsync", "posix.", "_io.")),
    ("crypto", ("/crypto/", "cryptography", "hashlib", "_hashlib", "openssl_")),
    ("ledger", ("ledger.py", "merkle.py", "datetime", "strftime")),
    ("serialise", ("canonical.py", "codec.py", "envelope.py", "/json/", "json.")),
    ("roster, groups and papers", ("roster.py", "groups.py", "papers.py", "graph.py")),
    ("pairs and votes", ("pairs.py", "unmasking.py", "ballots.py", "holding.py")),
    ("vectors", ("sums.py", "quantiser.py", "numpy", "ring.py")),
)


class Clock:
    """Seconds of the processor inside what counts as cryptography."""

    def __init__(self) -> None:
        self.seconds, self._inside = 0.0, False

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Wrap every function of `_CRYPTO` for as long as this lasts."""
        undo: list[tuple[Any, str, Any]] = []
        for place, name in _CRYPTO:
            undo.append((place, name, getattr(place, name)))
            setattr(place, name, self._timed(getattr(place, name)))
        try:
            yield
        finally:
            for place, name, found in undo:
                setattr(place, name, found)

    def _timed(self, found: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return found(*args, **kwargs)
            self._inside = True
            start = time.process_time()
            try:
                return found(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self._inside = False

        return wrapped


class Trained(Drawn):
    """The ready vectors, and the processor's seconds that making them took."""

    seconds = 0.0

    @property
    def parameters(self) -> int:
        """Length of each."""
        return self._parameters

    def __getitem__(self, index: Any) -> Any:
        start = time.process_time()
        try:
            return super().__getitem__(index)
        finally:
            self.seconds += time.process_time() - start


def one(
    policy_name: str, clients: int, parameters: int, rounds: int, *, disk: bool, profile: bool
) -> dict[str, Any]:
    """Play the rounds in this process. Raises ArithmeticError for a wrong mean."""
    vectors, meter, clock = Trained(parameters, clients), Meter(), Clock()
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        place = Path(folder) if disk else None
        driver, form, state = made(policy_name, vectors, rounds + profile, meter, place)
        ready = time.process_time()
        driver.start()
        keyed, rows = time.process_time(), []
        for number in range(1, rounds + 1):
            before = np.array([time.process_time(), clock.seconds, vectors.seconds])
            wall = time.perf_counter()
            with clock.counting():
                state = driver.play(form.round(state, driver.cohort), number)
            after = np.array([time.process_time(), clock.seconds, vectors.seconds])
            rows.append((*(after - before), time.perf_counter() - wall))
        if profile:
            watch = cProfile.Profile(time.process_time)
            watch.runcall(driver.play, form.round(state, driver.cohort), rounds + 1)
            by_kind(pstats.Stats(watch, stream=sys.stderr), clients)
    mean = sum(vectors, start=np.zeros(parameters)) / clients
    error = float(np.abs(state.weights - mean).max())
    if not error < 1e-4:
        raise ArithmeticError(f"The mean of {clients} clients is off by {error:.3g}.")
    whole, crypto, training, walls = np.median(np.array(rows), axis=0).tolist()
    peak, each = memory("VmHWM"), 1000 / clients
    return {
        "policy": policy_name,
        "clients": clients,
        "parameters": parameters,
        "set_up_ms": (ready - start) * each,
        "keys_ms": (keyed - ready) * each,
        "round_ms": (whole - training) * each,
        "crypto_ms": crypto * each,
        "session_ms": (whole - training - crypto) * each,
        "wall_s": walls,
        "bytes_up": meter.up // clients,
        "bytes_down": meter.down // clients,
        "peak_gib": None if peak is None else peak / 2**30,
    }


def made(
    policy_name: str, vectors: Trained, rounds: int, meter: Meter, folder: Path | None
) -> tuple[Driver, Form[Any], Any]:
    """Return all sessions under their driver, the algorithm's form and its first state."""
    clients = len(vectors)
    policy = PrivacyPolicy.preset(policy_name).model_copy(update={"rekey_rounds": rounds})
    listed: Any = vectors  # read one by one
    algorithm = constant(vectors.parameters, listed)
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    names = client_names(clients)
    plan = make_plan(algorithm, policy, data=data, clients=names, rounds=rounds, scheme=None)
    form = policy.admit(algorithm)

    def store(name: str) -> Store:
        return FileStore(folder / f"{name}.jsonl") if folder else MemoryStore()

    making = Making(plan, policy, form, range(clients), scheme=None, store=store, seed=1)
    parties = set_up(making)
    driver = Driver(parties, MemoryTransport(parties.others), meter)
    return driver, form, algorithm.init(np.random.default_rng(0))


def by_kind(stats: pstats.Stats, clients: int) -> None:
    """Print milliseconds a client by kind of work; what a builtin takes is its caller's."""
    found: dict[str, float] = {}
    entries: Mapping[Any, Any] = stats.stats  # type: ignore[attr-defined]
    for (file, _, name), (_, _, own, _, callers) in entries.items():
        kind = kind_of(f"{file}:{name}")
        if kind is None and file == "~" and callers:
            for (caller, _, called), share in callers.items():
                found_kind = kind_of(f"{caller}:{called}") or "rest"
                found[found_kind] = found.get(found_kind, 0.0) + share[2]
            continue
        found[kind or "rest"] = found.get(kind or "rest", 0.0) + own
    for kind, seconds in sorted(found.items(), key=lambda row: -row[1]):
        print(f"{kind:28s} {1000 * seconds / clients:8.3f} ms a client", file=sys.stderr)
    stats.sort_stats("tottime").print_stats(25)


def kind_of(place: str) -> str | None:
    """Return the kind of work that a function is."""
    return next((kind for kind, marks in _KINDS if any(m in place for m in marks)), None)


def main() -> int:
    """Measure and print one JSON object a row."""
    options = argparse.ArgumentParser(description="One round of many one-user clients.")
    options.add_argument("--clients", type=int, nargs="*", default=[50, 200, 943])
    options.add_argument("--policies", nargs="*", default=list(POLICIES))
    options.add_argument("--parameters", type=int, default=ITEM_TABLE)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--disk", action="store_true", help="ledgers in files")
    options.add_argument("--profile", action="store_true")
    options.add_argument("--here", action="store_true", help="one row, in this process")
    args = options.parse_args()
    if args.here:
        place = args.policies[0], args.clients[0], args.parameters, args.rounds
        print(json.dumps(one(*place, disk=args.disk, profile=args.profile)))
        return 0
    flags = [f"--{name}" for name in ("disk", "profile") if getattr(args, name)]
    for clients in args.clients:
        rows = {}
        for policy in args.policies:
            own = ("--clients", clients, "--policies", policy)
            sizes = ("--parameters", args.parameters, "--rounds", args.rounds)
            command = [sys.executable, Path(__file__).resolve(), "--here", *own, *sizes, *flags]
            done = subprocess.run(  # noqa: S603
                [str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True
            )
            rows[policy] = json.loads(done.stdout)
            print(json.dumps(rows[policy]), flush=True)
        if set(POLICIES) <= set(rows):
            ratio = rows["masks"]["round_ms"] / rows["unsafe_plaintext"]["round_ms"]
            print(json.dumps({"clients": clients, "masks_over_clear": ratio}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
