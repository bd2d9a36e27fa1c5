"""The row ``flower_secagg_plus``: Flower's own functions, in an environment of their own."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    _setup,
    _share_keys,
    _unmask,
)
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key as Field
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from benchmarks._rows import Mean, Vector, serve

CLIP, LEVELS, MODULUS = 8.0, 1 << 22, 1 << 32  # defaults of SecAggPlusWorkflow


class FlowerSecAggPlus:
    """All clients are neighbours; each has weight 1 of at most 1."""

    tolerance = 2 * CLIP / LEVELS

    def __init__(self, parameters: int, clients: int) -> None:
        self._clients = [SecAggPlusState() for _ in range(clients)]
        self._inbox: list[dict[str, Any]] = []
        self._sum: list[Any] = []
        self._share_keys()

    def _share_keys(self) -> None:
        """Play the two steps before the upload: public keys, then shares under pair keys."""
        count = len(self._clients)
        settings = {
            Field.SAMPLE_NUMBER: count,
            Field.SHARE_NUMBER: count,
            Field.THRESHOLD: max(2, round(2 * count / 3)),
            Field.CLIPPING_RANGE: CLIP,
            Field.TARGET_RANGE: LEVELS,
            Field.MOD_RANGE: MODULUS,
            Field.MAX_WEIGHT: 1.0,
        }
        keys: dict[str, Any] = {}
        for number, state in enumerate(self._clients):
            state.nid = number
            made = _setup(state, settings)
            keys[str(number)] = (made[Field.PUBLIC_KEY_1], made[Field.PUBLIC_KEY_2])
        self._inbox = [{Field.SOURCE_LIST: [], Field.CIPHERTEXT_LIST: []} for _ in self._clients]
        for number, state in enumerate(self._clients):
            sent = _share_keys(state, keys)
            pairs = zip(sent[Field.DESTINATION_LIST], sent[Field.CIPHERTEXT_LIST], strict=True)
            for to, sealed in pairs:
                self._inbox[to][Field.SOURCE_LIST].append(number)
                self._inbox[to][Field.CIPHERTEXT_LIST].append(sealed)

    def prepare(self) -> None:
        """Nothing is prepared."""

    def client(self, index: int, vector: Vector) -> bytes:
        """Quantise and mask; the parts of the answer after their lengths."""
        made = _collect_masked_vectors(
            self._clients[index], self._inbox[index], 1, ndarrays_to_parameters([vector])
        )
        out = io.BytesIO()
        for part in made[Field.MASKED_PARAMETERS]:
            out.write(len(part).to_bytes(4, "little") + part)
        return out.getvalue()

    def server(self, upload: bytes) -> None:
        """Parse and add."""
        parts = _parts(upload)
        self._sum = arithmetic.parameters_addition(self._sum, parts) if self._sum else parts

    def close(self) -> bytes:
        """Reduce; the total stays with the server, who also opens it."""
        self._sum = arithmetic.parameters_mod(self._sum, MODULUS)
        return b""

    def open(self, total: bytes) -> Mean:
        """Join every seed's shares, take the self-masks off, restore the weighted mean."""
        found, self._sum = self._sum, []
        shapes = arithmetic.get_parameters_shape(found)
        everyone = list(range(len(self._clients)))
        asked = {Field.ACTIVE_NODE_ID_LIST: everyone, Field.DEAD_NODE_ID_LIST: []}
        answers = [_unmask(state, asked)[Field.SHARE_LIST] for state in self._clients]
        for owner in everyone:
            seed = combine_shares([shares[owner] for shares in answers])
            mask = pseudo_rand_gen(seed, MODULUS, shapes)
            found = arithmetic.parameters_subtraction(found, mask)
        weight, rest = arithmetic.factor_extract(arithmetic.parameters_mod(found, MODULUS))
        (values,) = dequantize(rest, CLIP, LEVELS)
        return (values - (len(everyone) - 1) * CLIP) * (LEVELS / weight)


def _parts(upload: bytes) -> list[Any]:
    parts, position = [], 0
    while position < len(upload):
        length = int.from_bytes(upload[position : position + 4], "little")
        position += 4
        parts.append(bytes_to_ndarray(upload[position : position + length]))
        position += length
    return parts


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(serve(FlowerSecAggPlus, int(sys.argv[1]), int(sys.argv[2])))
