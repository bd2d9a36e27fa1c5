"""What the aggregator holds of vectors that are compared, and in the end their cosines (O3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from protocols.disclosures._base.view import OneVerb
from protocols.disclosures._evaluated.view import Uploaded
from protocols.errors import LocalProtocolError
from protocols.forms import Exchange
from protocols.messages import Array, Message, Vector
from protocols.plan.steps import Part
from protocols.rounds import View
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class CosinesView(OneVerb):
    """SIMILARITY, protected: one rounded cosine per pair, sorted by client."""

    verb = "similarity"

    def __init__(self, cosines: Array) -> None:
        self._cosines = cosines

    def _answer(self, **options: Any) -> Array:
        return self._cosines.copy()


class Compared(Uploaded):
    """The vectors of one Ask.

    Attributes:
        cosines: of every pair, once they were opened.
    """

    verb: ClassVar[str] = CosinesView.verb
    adds: ClassVar[bool] = False

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.cosines: Vector | None = None

    def views(self) -> dict[type[Message], View]:
        """Return the cosines; raises LocalProtocolError if they are not here."""
        if not self.protected:
            return super().views()
        if self.cosines is None:
            raise LocalProtocolError("The cosines were not opened yet.")
        return dict.fromkeys(self.kinds, CosinesView(self.cosines))

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Array:
        """Return the cosines of vectors that came in clear."""
        (field,) = kind.fields
        rows = np.stack([np.ravel(getattr(m, field.name)) for m in sent.values()])
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        cosines: Array = units @ units.T
        return cosines


VIEW = Compared
