"""From values to ciphertexts on which results are computed, signed for witnesses (O4)."""

from __future__ import annotations

from typing import Any

from crypto.samplers import Stream
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.uploads import enciphered, signed_upload
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.schema import Layout
from protocols.wire.header import Header
from protocols.wire.run_context import RunContext


class EvaluatedProtection(Protection):
    """Ciphertexts where the chain computes on them, and else the message as it is."""

    def layout(
        self, context: RunContext, item: Item, kinds: tuple[type[Message], ...]
    ) -> Layout | None:
        """Return the grid of what is weighed; directions have none."""
        if not context.enciphers(item):
            return None
        return shape_of(kinds, context.policy, context.dims(item)).layout

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Encrypt and sign."""
        context, item = release.context, release.item
        if not context.enciphers(item):
            return super().body(release, header, prepared)
        shape = shape_of(release.kinds, context.policy, release.dims)
        stream, key = Stream(release.seeded("rounding")), context.key_of(item.disclosure)
        (message,) = release.messages
        body, clipped = enciphered(message, shape, key, context.run, release.dims, stream)
        return signed_upload(body, header, context.me.signing.sign), clipped
