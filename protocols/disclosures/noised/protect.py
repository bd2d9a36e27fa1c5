"""From a client's rows to rows among decoys, clipped and noised."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures.noised.decoys import Decoyer
from protocols.wire.codec import encode
from protocols.wire.header import Header


class NoisedProtection(Protection):
    """Decoys may be drawn once in a run, so they are kept."""

    def own(self) -> Decoyer:
        """Return which decoys were drawn."""
        return Decoyer()

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Add decoys and noise."""
        ready = [release.own.ready(m, release.chain, release.dims) for m in release.messages]
        body = encode([message for message, _ in ready], release.dims, release.known)
        return body, any(clipped for _, clipped in ready)


PROTECT = NoisedProtection()
