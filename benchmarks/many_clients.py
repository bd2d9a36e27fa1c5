"""What one round of many one-user clients costs, beside its twin in clear.

    python benchmarks/many_clients.py [--clients 50 200 943] [--parameters 107777] [--rounds 5]

Every client's "training" hands out a ready vector as long as ML-100K's item table (1,682 x 64) and
a few weights more; it is timed and left out. Each row is a process of its own, so that its peak
memory is its own. Seconds are of the processor (all parties share one), medians of the rounds:

    round_ms      one client's share of a round, the aggregator's work for it included
    keys_ms       the same of an epoch's keys, agreed on once in `rekey_rounds` rounds
    crypto_ms     of a round: signatures, seals, masks, shares, rounding and hashes of long bodies
    session_ms    of a round: what is neither that nor training
    client_ms     of session_ms: what clients' own sessions took; the rest is the aggregator's
    clock_ms      what telling these apart took, left out of the others: of five rounds or more the
                  first warms up, and half of the others are played without that clock and take
                  less time by so much; of fewer, or with `--profile`, what calls in a row take
    peak_gib      memory of the whole process, libraries and all

With `--drawn` a round asks one of the cohorts that lots drew, and its shares are of its members.
`masks_over_clear` compares two rows of one client number. `--profile` adds `where_ms`: session_ms
by kind of work, from looks at the stack (`benchmarks/_where.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._rows import memory
from benchmarks._sessions import Drawn
from benchmarks._where import Looks
from benchmarks.bench_he import constant
from crypto.hpke import OpeningKey, SealingKey
from crypto.masks import MaskSum
from crypto.signing import SigningKey, VerifyKey
from protocols.disclosures.sum import disclosure as protect
from protocols.disclosures.sum import masks as unmasking
from protocols.disclosures.sum.layout import SumLayout
from protocols.evidence.ledger import MemoryStore, Store
from protocols.forms import Form
from protocols.keys import pairs
from protocols.plan.plan import DataPlan
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy
from protocols.roles import client
from protocols.rounds import Cohort
from protocols.sessions import calling
from protocols.sessions.engine import Delivery
from protocols.wire import gateway
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.naming import client_names
from secure_fgl.run.parties import Making, set_up
from secure_fgl.store.files import Folder
from secure_fgl.store.run_folder import FileStore
from secure_fgl.transports.memory import MemoryTransport, Receiver

ITEM_TABLE = 1682 * 64 + 129
POLICIES = ("unsafe_plaintext", "masks")
CRYPTO: tuple[tuple[Any, str], ...] = (
    (hashlib, "sha256"),
    (VerifyKey, "verify_raw"),
    (SigningKey, "sign"),
    (SealingKey, "seal"),
    (OpeningKey, "open"),
    (protect, "masked"),
    (gateway, "derive"),
    (protect, "Stream"),
    (SumLayout, "_round"),
    (MaskSum, "add"),
    (MaskSum, "take"),
    (unmasking, "combine"),
    (pairs, "split"),
    (pairs, "derive"),
    (pairs, "lock"),
    (calling, "bytes_digest"),
    (client, "bytes_digest"),
)
"""Owner and name of what counts as cryptography; hashing inside the others counts once, there."""
_TOLD = 5  # rounds: one that warms up, without the clock, with it, with it, without
_TRIES = 20_000  # calls that the clock's own cost is measured with


class Clock:
    """Seconds of the processor inside what counts as cryptography, and what counting them cost.

    Args:
        crypto: owner and name of each function that counts.
    """

    def __init__(self, crypto: Sequence[tuple[Any, str]] = CRYPTO) -> None:
        self._crypto = crypto
        self.seconds, self.calls, self._inside = 0.0, 0, False
        bare, timed = (lambda: None), self._timed(lambda: None)
        start = time.process_time()
        for _ in range(_TRIES):
            bare()
        middle = time.process_time()
        for _ in range(_TRIES):
            timed()
        end = time.process_time()
        self._within = self.seconds / _TRIES  # of one call's cost, what it takes for cryptography
        self._each = (end - middle - (middle - start)) / _TRIES
        self.seconds, self.calls = 0.0, 0

    @property
    def found(self) -> tuple[float, float, float]:
        """Seconds counted, and of them and of all those that this clock took, calls in a row."""
        return self.seconds, self.calls * self._within, self.calls * self._each

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Wrap every function of cryptography for as long as this lasts."""
        undo: list[tuple[Any, str, Any]] = []
        for place, name in self._crypto:
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
            self.calls += 1
            start = time.process_time()
            try:
                return found(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self._inside = False

        return wrapped


class Trained(Drawn):
    """The ready vectors, the processor's seconds that making them took, and the size of cohorts."""

    seconds, drawn = 0.0, 0

    @property
    def parameters(self) -> int:
        """Length of each."""
        return self._parameters

    def check(self, cohort: Cohort, weights: Any) -> None:
        """Raise ArithmeticError unless these are the mean of a cohort's vectors."""
        there, names = set(cohort._members), client_names(len(self))
        said = (self[place] for place, name in enumerate(names) if name in there)
        mean = sum(said, start=np.zeros(self.parameters)) / cohort.size
        if not (error := float(np.abs(weights - mean).max())) < 1e-4:
            raise ArithmeticError(f"The mean of {cohort.size} clients is off by {error:.3g}.")

    def __getitem__(self, index: Any) -> Any:
        start = time.process_time()
        try:
            return super().__getitem__(index)
        finally:
            self.seconds += time.process_time() - start


class Timed(MemoryTransport):
    """The memory's transport, and what answering took: seconds as `tick` counts them."""

    spent: Any = 0.0

    def __init__(self, sessions: Mapping[str, Receiver], tick: Callable[[], Any]) -> None:
        super().__init__(sessions)
        self._tick = tick

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver as ever; everybody but the aggregator is a client here."""
        before = self._tick()
        answers = super().exchange(deliveries)
        self.spent = self.spent + (self._tick() - before)
        return answers


def one(
    policy_name: str, vectors: Trained, rounds: int, *, disk: bool, profile: bool
) -> dict[str, Any]:
    """Play the rounds in this process. Raises ArithmeticError for a wrong mean."""
    meter, clock, looks, clients = Meter(), Clock(), Looks(), len(vectors)

    def tick() -> Any:
        return np.array([time.process_time() - vectors.seconds, *clock.found])

    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        place = Path(folder) if disk else None
        driver, form, state, transport = made(policy_name, vectors, rounds, meter, place, tick)
        ready = time.process_time()
        driver.start()
        keyed, rows = time.process_time(), []
        for number in range(1, rounds + 1):
            counted = profile or rounds < _TOLD or number % 4 in (3, 0)
            before, wall, transport.spent = tick(), time.perf_counter(), np.zeros(4)
            with (
                clock.counting() if counted else contextlib.nullcontext(),
                looks.looking() if profile else contextlib.nullcontext(),
            ):
                cohort = driver.cohort_of(number)
                state = driver.play(form.round(state, cohort), number)
            rows.append((counted, time.perf_counter() - wall, tick() - before, transport.spent))
    if rounds >= _TOLD and not profile:
        rows = rows[1:]
    vectors.check(cohort, state.weights)
    whole, crypto, own, own_crypto, clocked = told_apart(rows)
    walls = float(np.median([row[1] for row in rows if not row[0]] or [row[1] for row in rows]))
    peak, each, once = memory("VmHWM"), 1000 / cohort.size, 1000 / clients
    row = {
        "policy": policy_name,
        "clients": clients,
        "asked": cohort.size,
        "parameters": vectors.parameters,
        "set_up_ms": (ready - start) * once,
        "keys_ms": (keyed - ready) * once,
        "round_ms": whole * each,
        "crypto_ms": crypto * each,
        "session_ms": (whole - crypto) * each,
        "client_ms": (own - own_crypto) * each,
        "clock_ms": clocked * each,
        "wall_s": walls,
        "bytes_up": meter.up // clients,
        "bytes_down": meter.down // clients,
        "peak_gib": None if peak is None else peak / 2**30,
    }
    if profile:
        shares = looks.shares()
        shares.pop("training", None)
        known = sum(shares.values()) - shares.pop("cryptography", 0)
        row["where_ms"] = {k: v / known * row["session_ms"] for k, v in shares.items()}
    return row


def told_apart(rows: Sequence[tuple[bool, float, Any, Any]]) -> tuple[float, ...]:
    """Return seconds of a round and of its cryptography, both of clients alone, and of the clock.

    A call that is counted among others costs up to twice what it costs in a loop of nothing else:
    so rounds played without the clock say what it took, and the part of it that it counted as
    cryptography is larger in proportion. That proportion is assumed: all of the rest within what
    is counted, or all around it, would move a session of 1.4 ms by 0.09 either way.

    Args:
        rows: of each round: with the clock or without, seconds of the wall, what `tick` says of
            all, and of clients.
    """
    counted, bare = [row for row in rows if row[0]], [row for row in rows if not row[0]]
    all_of, own = (np.median([row[place] for row in counted], axis=0) for place in (2, 3))
    clocked, whole = all_of[3], [all_of[0] - all_of[3], own[0] - own[3]]
    if bare:
        whole = [float(np.median([row[place][0] for row in bare])) for place in (2, 3)]
        clocked = max(all_of[0] - whole[0], all_of[3])
    more = clocked / all_of[3] if all_of[3] else 0.0
    crypto = [part[1] - part[2] * more for part in (all_of, own)]
    return (whole[0], crypto[0], whole[1], crypto[1], clocked)


def made(
    policy_name: str,
    vectors: Trained,
    rounds: int,
    meter: Meter,
    folder: Path | None,
    tick: Callable[[], Any],
) -> tuple[Driver, Form[Any], Any, Timed]:
    """Return all sessions under their driver, the form, its first state, and what carries."""
    clients = len(vectors)
    policy = PrivacyPolicy.preset(policy_name).model_copy(update={"rekey_rounds": rounds})
    listed: Any = vectors  # read one by one
    algorithm = constant(vectors.parameters, listed)
    forms = tuple(replace(form, drawn=vectors.drawn) for form in algorithm.forms)
    algorithm = replace(algorithm, forms=forms)
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    names = client_names(clients)
    plan = make_plan(algorithm, policy, data=data, clients=names, rounds=rounds, scheme=None)
    form = policy.admit(algorithm)

    def store(name: str) -> Store:
        return FileStore(Folder(folder), f"{name}.jsonl") if folder else MemoryStore()

    making = Making(plan, policy, form, range(clients), scheme=None, store=store, seed=1)
    parties = set_up(making)
    transport = Timed(parties.others, tick)
    driver = Driver(parties, transport, meter)
    return driver, form, algorithm.init(np.random.default_rng(0)), transport


def main() -> int:
    """Measure and print one JSON object a row."""
    options = argparse.ArgumentParser(description="One round of many one-user clients.")
    options.add_argument("--clients", type=int, nargs="*", default=[50, 200, 943])
    options.add_argument("--policies", nargs="*", default=list(POLICIES))
    options.add_argument("--parameters", type=int, default=ITEM_TABLE)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--drawn", type=int, default=0, help="clients of a drawn cohort, at least")
    options.add_argument("--disk", action="store_true", help="ledgers in files")
    options.add_argument("--profile", action="store_true")
    options.add_argument("--here", action="store_true", help="one row, in this process")
    args = options.parse_args()
    if args.here:
        vectors = Trained(args.parameters, args.clients[0])
        vectors.drawn, facts = args.drawn, {"disk": args.disk, "profile": args.profile}
        print(json.dumps(one(args.policies[0], vectors, args.rounds, **facts)))
        return 0
    flags = [f"--{name}" for name in ("disk", "profile") if getattr(args, name)]
    for clients in args.clients:
        rows = {}
        for policy in args.policies:
            own = ("--clients", clients, "--policies", policy)
            sizes = (
                "--parameters",
                args.parameters,
                "--rounds",
                args.rounds,
                "--drawn",
                args.drawn,
            )
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
