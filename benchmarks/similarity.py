"""Encrypted cosines and weighted sums beside TenSEAL's own operations.

pair: one cosine of two encrypted vectors already loaded, at the aggregator.

    ours    masked product with its fresh encryption of zero, as it is sent to the authority
    peer    ``dot`` of two CKKS vectors, degree 8192, primes [60, 40, 40, 60], scale 2^40

weight: one client's part in one receiver's combination, at the aggregator.

    ours    a whole table, K uploads to K blinded rows, bytes to bytes, divided by K x K
    peer    one CKKS vector of the same length times one number, loaded, nothing else

context: what the aggregator must hold: TenSEAL's public context with its Galois keys beside our
public key. Ratios within one run; nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tenseal
from numpy.typing import NDArray

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._measure import interleaved, medians, paired_ratio, parser, show
from crypto.homomorphic.similarity import PRODUCT_BYTES, WIDTH, similarity, sketch, unit
from crypto.homomorphic.weighted import TOTAL, flatten, weighted
from crypto.quantiser import Packing
from crypto.samplers import entropy

VALUE_BITS = 15


@contextmanager
def silence() -> Iterator[None]:
    """Close standard output to libraries: TenSEAL prints a line for every long vector."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def peer_context() -> Any:
    """Return a context with every key that ``dot`` needs."""
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
    context.global_scale = 2.0**40
    context.generate_galois_keys()
    return context


def vectors(clients: int, d: int) -> list[NDArray[np.float64]]:
    """Return unit vectors with something in common, each of shape (d,)."""
    rng = np.random.default_rng(7)
    base = rng.standard_normal(d)
    return [unit(rng.uniform(0.2, 1) * base + rng.standard_normal(d)) for _ in range(clients)]


def pairs(context: Any, d: int, repeats: int) -> dict[str, Any]:
    """Return figures for cosines of vectors of `d` values."""
    ring, rows = similarity(), vectors(4, d)
    public, secret = ring.keygen()
    uploads = [ring.upload(public, row) for row in rows]
    ready = [ring.operand(upload) for upload in uploads]
    theirs = [tenseal.ckks_vector(context, row.tolist()) for row in rows[:2]]
    seconds = interleaved(
        {
            "ours": lambda: ring.product(public, ready[0], ready[1], entropy(32)),
            "peer": lambda: theirs[0].dot(theirs[1]),
        },
        repeats,
    )
    errors = [
        ring.cosine(secret, ring.product(public, ready[i], ready[j], entropy(32)))
        - rows[i] @ rows[j]
        for i, j in itertools.product(range(len(rows)), repeat=2)
    ]
    keys = len(context.serialize(save_public_key=True, save_secret_key=False))
    found = medians(seconds)
    return {
        "pair_values": d,
        "pair_ours_ms": 1e3 * found["ours"],
        "pair_peer_ms": 1e3 * found["peer"],
        "pair_ratio": paired_ratio(seconds, "peer", "ours"),
        "cosine_max_error": float(np.abs(errors).max()),
        "upload_ours_bytes": len(uploads[0]),
        "upload_peer_bytes": len(theirs[0].serialize()),
        "product_bytes": PRODUCT_BYTES,
        "context_ours_bytes": len(public.raw),
        "context_peer_bytes": keys,
        "context_ratio": keys / len(public.raw),
    }


def sketched(d: int) -> dict[str, Any]:
    """Return the error of sketches of vectors of `d` values, all pairs of six clients."""
    rows, seed = vectors(6, d), entropy(32)
    short = [unit(sketch(row, seed)) for row in rows]
    errors = [
        short[i] @ short[j] - rows[i] @ rows[j] for i, j in itertools.combinations(range(6), 2)
    ]
    return {
        "sketch_values": d,
        "sketch_width": WIDTH,
        "sketch_max_error": float(np.abs(errors).max()),
        "sketch_rms_error": float(np.sqrt(np.mean(np.square(errors)))),
    }


def combining(d: int, clients: int) -> Callable[[], list[bytes]]:
    """Return our whole table: `clients` uploads of `d` values to as many blinded rows."""
    ring = weighted()
    public, _ = ring.keygen()
    packing = Packing(VALUE_BITS, TOTAL, ring.plain_bits)
    values = np.random.default_rng(3).integers(0, 1 << VALUE_BITS, d)
    uploads = [ring.encrypt(public, packing.pack(values)) for _ in range(clients)]
    shares = np.random.default_rng(4).uniform(0.5, 1, (clients, clients))
    weights = flatten(shares / shares.sum(axis=1, keepdims=True))
    seeds = [entropy(32) for _ in range(clients)]
    return lambda: ring.combine(public, uploads, weights, seeds)


def weights(context: Any, d: int, clients: int, repeats: int) -> dict[str, Any]:
    """Return figures for one weight times one client's vector of `d` values."""
    theirs = tenseal.ckks_vector(context, np.random.default_rng(3).uniform(-1, 1, d).tolist())
    parts = {"ours": combining(d, clients), "peer": lambda: theirs * 0.3}
    seconds = interleaved(parts, repeats)
    each = {"ours": [value / clients**2 for value in seconds["ours"]], "peer": seconds["peer"]}
    found = medians(each)
    return {
        "weight_values": d,
        "weight_clients": clients,
        "weight_ours_ms": 1e3 * found["ours"],
        "weight_peer_ms": 1e3 * found["peer"],
        "weight_ratio": paired_ratio(each, "peer", "ours"),
    }


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of one run."""
    context = peer_context()
    return {
        "repeats": args.repeats,
        **pairs(context, args.values, args.repeats),
        **sketched(args.parameters),
        **weights(context, args.parameters, args.clients, args.repeats),
    }


def main() -> int:
    """Measure and print."""
    options = parser("Encrypted cosines and weighted sums beside TenSEAL.", repeats=3)
    options.add_argument("--values", type=int, default=50_000, help="of a vector that is compared")
    options.add_argument("--parameters", type=int, default=1_000_000, help="of a weighted sum")
    options.add_argument("--clients", type=int, default=10, help="of a weighted sum")
    args = options.parse_args()
    with silence():
        result = measured(args)
    show(result, args.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
