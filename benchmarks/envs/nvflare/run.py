"""The row ``nvflare_he``: NVFlare's own classes, in an environment of their own."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import tenseal
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.he.intime_accumulate_model_aggregator import (
    HEInTimeAccumulateWeightedAggregator,
)
from nvflare.app_opt.he.model_decryptor import HEModelDecryptor
from nvflare.app_opt.he.model_encryptor import HEModelEncryptor
from nvflare.lighter.impl.he import HEBuilder

from benchmarks._rows import Mean, Vector, serve

LAYER = "w"
STEPS = 10  # local steps of every client, by which NVFlare weighs


def _context(peer: str) -> FLContext:
    """Return what a filter or aggregator may ask about a round and its peer."""
    context, other = FLContext(), FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, "server", private=False, sticky=False)
    other.set_prop(ReservedKey.IDENTITY_NAME, peer, private=False, sticky=False)
    context.set_peer_context(other)
    context.set_prop(AppConstants.CURRENT_ROUND, 0, private=True, sticky=False)
    return context


class NvflareHe:
    """NVFlare's encryptor, aggregator and decryptor on one layer."""

    tolerance = 1e-5

    def __init__(self, parameters: int, clients: int) -> None:
        builder = HEBuilder()
        builder.initialize(None, None)
        client = tenseal.context_from(builder.get_serialized_context(is_client=True))
        self._server = tenseal.context_from(builder.get_serialized_context(is_client=False))
        self._encryptor = HEModelEncryptor(weigh_by_local_iter=True)
        self._encryptor.tenseal_context, self._encryptor.encrypt_layers = client, [True]
        self._decryptor = HEModelDecryptor()
        self._decryptor.tenseal_context = client
        self._aggregator: Any = None
        self._clients, self._added = clients, 0
        self._dxo: Any = None

    def prepare(self) -> None:
        """Nothing is prepared."""

    def client(self, index: int, vector: Vector) -> bytes:
        """Filter and serialise."""
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: STEPS}
        dxo = DXO(DataKind.WEIGHT_DIFF, data={LAYER: vector}, meta=meta)
        self._dxo = self._encryptor.process_dxo(dxo, Shareable(), _context(f"client-{index}"))
        return bytes(self._dxo.data[LAYER].serialize())

    def server(self, upload: bytes) -> None:
        """Parse and accept."""
        if self._aggregator is None:
            self._aggregator = HEInTimeAccumulateWeightedAggregator(
                expected_data_kind=DataKind.WEIGHT_DIFF, weigh_by_local_iter=False
            )
            self._aggregator.handle_event(EventType.START_RUN, _context("server"))
        name = f"client-{self._added}"
        self._added += 1
        self._dxo.data[LAYER] = tenseal.ckks_vector_from(self._server, upload)
        shareable = self._dxo.to_shareable()
        shareable.add_cookie(AppConstants.CONTRIBUTION_ROUND, 0)
        shareable.set_peer_props({ReservedKey.IDENTITY_NAME: name})
        if not self._aggregator.accept(shareable, _context(name)):
            raise RuntimeError("NVFlare's aggregator did not accept an upload.")

    def close(self) -> bytes:
        """Aggregate and serialise."""
        self._dxo = from_shareable(self._aggregator.aggregate(_context("server")))
        self._aggregator, self._added = None, 0
        return bytes(self._dxo.data[LAYER].serialize())

    def open(self, total: bytes) -> Mean:
        """Filter: parse and decrypt."""
        self._dxo.data[LAYER] = total
        found = self._decryptor.process_dxo(self._dxo, Shareable(), _context("client-0"))
        return np.array(found.data[LAYER], dtype=np.float64)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(serve(NvflareHe, int(sys.argv[1]), int(sys.argv[2])))
