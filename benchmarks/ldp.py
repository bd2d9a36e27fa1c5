"""The tables of docs/results/ldp.md: what one client's own noise leaves of statistics and models.

    python benchmarks/ldp.py statistics --data DIR [--seeds 3]
    python benchmarks/ldp.py cost
    python benchmarks/ldp.py train --data DIR --out FOLDER [--seeds 3]

`statistics` runs the mechanisms as functions, on what real clients hold: the unit is a client, each
sends one message, and epsilon is pure (delta 0) but for the Gaussian's 10^-5. A cell holds the root
of the mean squared error of the estimated mean, and by how many standard errors (over repetitions)
it is better than the best guess without data. `cost` takes client time beside the noise of
`calibrated` on the same vector. `train` plays whole runs of FedAvg on Cora.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # a script's folder is on the path, the folder above it is not
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from crypto.ldp import Piecewise, RandomisedResponse, Randomiser, UnaryEncoding
from crypto.ldp_vectors import GaussianVector, LaplaceVector, Sqkr
from crypto.noise import DiscreteGaussian, sampler
from crypto.samplers import Stream, entropy
from protocols.privacy import accounting

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SEED = bytes(32)  # of the public rotation
Say = Callable[[Any, np.random.Generator], Any]
"""From what a client holds to the value that the mechanism takes."""


@dataclass(frozen=True)
class Statistic:
    """A mean over clients, with the best guess of it that uses no data.

    Attributes:
        name: in the table.
        held: per client what it holds.
        truth, guess: the mean over clients, and the guess, (d,).
        ways: by name a mechanism for an epsilon, and what it is given.
        shift: added to an estimate.
        repeats: of the whole cohort.
    """

    name: str
    held: Sequence[Any]
    truth: np.ndarray
    guess: np.ndarray
    ways: dict[str, tuple[Callable[[float], Randomiser], Say]]
    shift: float = 0.0
    repeats: int = 20


def sigma_of(epsilon: float) -> float:
    """Return the discrete Gaussian's scale in grid steps for one message, replace-one."""
    two = 2.0 * (1 << 16)
    return accounting.calibrate(
        epsilon=epsilon, delta=DELTA, releases=1, l2=two, l1=two * 8, dimension=1, honest=1,
        tails=accounting.tails(honest=1, dimension=1 << 20, releases=1),
    )  # fmt: skip


def whole(value: Any, rng: np.random.Generator) -> Any:
    """Return what a client holds, as it is."""
    return value


def labels_of_cora(data: Path, clients: int) -> Statistic:
    """Return the mean of clients' label shares: one record's label, or the whole histogram."""
    from secure_fgl.data.datasets import load_dataset
    from secure_fgl.data.records import split_masks
    from secure_fgl.data.sharing import partition

    graph = load_dataset("cora", data)
    rng = np.random.default_rng(1)
    masks = split_masks(graph, rng=rng)
    parts = partition(graph, "metis_disjoint", clients, masks, rng)
    held = [np.bincount(part.y, minlength=graph.classes) for part in parts]
    shares = [one / one.sum() for one in held]
    k = graph.classes

    def one_label(share: Any, chance: np.random.Generator) -> int:
        return int(chance.choice(k, p=share))

    return Statistic(
        f"label shares, Cora, {clients} clients, 7 numbers",
        shares,
        np.mean(shares, axis=0),
        np.full(k, 1 / k),
        {
            "randomised_response": (lambda e: RandomisedResponse(k, e), one_label),
            "unary": (lambda e: UnaryEncoding(k, e), one_label),
            "discrete_laplace": (lambda e: LaplaceVector.within(k, 1.0, e), whole),
            "discrete_gaussian": (lambda e: GaussianVector(k, 1.0, sigma_of(e)), whole),
            "sqkr": (lambda e: Sqkr(k, 1.0, e, SEED), whole),
        },
        repeats=100,
    )


def ratings_of_ml100k(data: Path) -> Iterator[Statistic]:
    """Yield the mean over users of a user's mean rating, and of the items that it rated."""
    from secure_fgl.data.datasets import load_dataset

    whole_set = load_dataset("ml100k", data)
    users = range(whole_set.users)
    order = np.argsort(whole_set.user, kind="stable")
    cuts = np.searchsorted(whole_set.user[order], np.arange(1, whole_set.users))
    rows = np.split(order, cuts)
    means = [float(whole_set.rating[rows[u]].mean()) for u in users]
    yield Statistic(
        f"a user's mean rating (1 to 5), ML-100K, {len(means)} clients, 1 number",
        [mean - 3.0 for mean in means],
        np.array([np.mean(means)]),
        np.array([3.0]),
        {
            "piecewise": (lambda e: Piecewise(2.0, e), whole),
            "discrete_laplace": (
                lambda e: LaplaceVector.within(1, 2.0, e),
                lambda v, _: np.array([v]),
            ),
            "discrete_gaussian": (
                lambda e: GaussianVector(1, 2.0, sigma_of(e)),
                lambda v, _: np.array([v]),
            ),
        },
        shift=3.0,
        repeats=50,
    )
    yield items(
        f"which item a user touched, ML-100K, {len(means)} clients",
        [whole_set.item[rows[u]] for u in users],
        whole_set.items,
    )


def implicit_of_ml1m(data: Path) -> Statistic:
    """Return the items of ML-1M's users; the folder holds no ratings."""
    with np.load(data / "ml1m_implicit" / "ml1m_implicit.npz") as file:
        user, item = (np.asarray(file[name]) for name in ("user", "item"))
    count, catalogue = int(user.max()) + 1, int(item.max()) + 1
    order = np.argsort(user, kind="stable")
    cuts = np.searchsorted(user[order], np.arange(1, count))
    held = [item[one] for one in np.split(order, cuts)]
    held = [one for one in held if one.size]
    return items(f"which item a user touched, ML-1M, {len(held)} clients", held, catalogue)


def items(name: str, held: Sequence[np.ndarray], catalogue: int) -> Statistic:
    """Return the mean over users of 1/n for each of a user's n items: one item drawn of them."""
    truth = np.zeros(catalogue)
    for one in held:
        truth[one] += 1.0 / one.size
    truth /= len(held)

    def drawn(one: np.ndarray, chance: np.random.Generator) -> int:
        return int(chance.choice(one))

    def share(one: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        found = np.zeros(catalogue)
        found[one] = 1.0 / one.size
        return found

    return Statistic(
        f"{name}, {catalogue:,} numbers",
        held,
        truth,
        np.full(catalogue, 1 / catalogue),
        {
            "randomised_response": (lambda e: RandomisedResponse(catalogue, e), drawn),
            "unary": (lambda e: UnaryEncoding(catalogue, e), drawn),
            "sqkr": (lambda e: Sqkr(catalogue, 1.0, e, SEED), share),
        },
        repeats=3,
    )


def errors(stat: Statistic, way: str, epsilon: float, seed: int) -> np.ndarray:
    """Return the squared error of the mean in each repetition, (repeats,)."""
    make, say = stat.ways[way]
    made, found = make(epsilon), np.empty(stat.repeats)
    for again in range(stat.repeats):
        rng, stream = np.random.default_rng([seed, again]), Stream(entropy(32))
        sent = [made.encode(say(value, rng), stream) for value in stat.held]
        found[again] = np.sum((made.mean(sent) + stat.shift - stat.truth) ** 2)
    return found


def statistics(data: Path, seeds: int) -> None:
    """Print one table a statistic."""
    stats = [labels_of_cora(data, 50), *ratings_of_ml100k(data), implicit_of_ml1m(data)]
    for stat in stats:
        guess = float(np.sum((stat.guess - stat.truth) ** 2))
        print(f"\n{stat.name}; the best guess without data errs by {guess**0.5:.4g}\n")
        print("| mechanism | bytes | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " |")
        print("|---|---|" + "---|" * len(EPSILONS))
        for way in stat.ways:
            cells = []
            for epsilon in EPSILONS:
                drawn = np.concatenate([errors(stat, way, epsilon, s) for s in range(seeds)])
                spread = float(drawn.std(ddof=1) / np.sqrt(drawn.size))
                ahead = (guess - float(drawn.mean())) / max(spread, 1e-300)
                cells.append(f"{float(drawn.mean()) ** 0.5:.4g} ({ahead:+.3g})")
            size = stat.ways[way][0](EPSILONS[-1]).size
            print(f"| {way} | {size:,} | " + " | ".join(cells) + " |", flush=True)


def cost() -> None:
    """Print client time of each mechanism beside the noise of `calibrated`."""
    print("| numbers | mechanism | ms | × calibrated's noise | bytes |\n|---|---|---|---|---|")
    for d in (1_000, 184_391, 1_000_000):
        vector = np.random.default_rng(0).standard_normal(d) / d**0.5
        law = sampler(DiscreteGaussian, 73_876.0)
        grid = np.zeros(d, dtype=np.int64)
        base = best(lambda grid=grid, law=law: grid + law.sample(Stream(entropy(32)), grid.size))
        print(f"| {d:,} | calibrated, noise alone | {1e3 * base:.3g} | 1 | {4 * d:,} |")
        for made in (
            GaussianVector(d, 1.0, sigma_of(8.0)),
            LaplaceVector.within(d, 1.0, 8.0),
            Sqkr(d, 1.0, 8.0, SEED),
        ):
            took = best(
                lambda made=made, vector=vector: made.pack(made.encode(vector, Stream(entropy(32))))
            )
            print(f"| {d:,} | {made.name} | {1e3 * took:.3g} | {took / base:.2f} | {made.size:,} |")


def best(work: Callable[[], Any], times: int = 7) -> float:
    """Return the shortest of several runs, in seconds."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def train(data: Path, out: Path, seeds: int) -> None:
    """Print the accuracy of FedAvg's last model on Cora under own noise, calibrated and masks."""
    from protocols.policy.policy import PRESETS, PrivacyPolicy
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    config = Config.load(Path(__file__).parents[1] / "examples" / "cora.yaml", [])
    rows: list[tuple[str, PrivacyPolicy]] = [("masks", PRESETS["masks"])]
    rows.append(("calibrated, ε = 8", PRESETS["calibrated"]))
    for epsilon in EPSILONS:
        document = PRESETS["ldp"].document()
        for name in ("SUM", "NOISED"):
            for guard in document["rules"][name]:
                if guard["guard"] == "own_noise":
                    guard |= {"epsilon": epsilon, "accept_noise": True}
        document["name"] = "ldp-accepted"
        rows.append((f"ldp, ε = {epsilon:g}", PrivacyPolicy.model_validate(document)))
    for label, policy in rows:
        found = []
        for seed in range(1, seeds + 1):
            folder = out / f"{label.replace(' ', '').replace(',', '-')}-{seed}"
            more = {
                "seed": seed,
                "data": {**config.data.model_dump(), "root": str(data)},
                "budget": {"store": str(folder / "budgets")},
            }
            more["data"]["partition"] = {"name": "metis_disjoint", "clients": 50}
            document = {**config.model_dump(mode="json"), **more, "resume": False}
            document["algorithm"]["rounds"] = 10
            document["data"]["features"] = "raw"
            chosen = Config.parse({**document, "policy": policy.name})
            federation = Federation(config=chosen, policy=policy)
            run = federation.run(folder / "run")
            result = json.loads((folder / "run" / "result.json").read_text())
            metric = result["metrics"].get("test_accuracy")
            found.append(metric if metric is not None else result["references"]["released_model"])
            del run
        mean, spread = float(np.mean(found)), float(np.std(found, ddof=1)) if seeds > 1 else 0.0
        print(f"| {label} | {mean:.3f} ± {spread:.3f} | {found} |", flush=True)


def main() -> None:
    """Read the command line and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("table", choices=("statistics", "cost", "train"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("ldp-runs"))
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.table == "cost":
        cost()
    elif chosen.table == "statistics":
        statistics(chosen.data, chosen.seeds)
    else:
        train(chosen.data, chosen.out, chosen.seeds)


if __name__ == "__main__":
    main()
