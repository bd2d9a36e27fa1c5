"""What the aggregator holds of uploads that results are computed on: ciphertexts, signed (O4)."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures._base.view import Answers
from protocols.disclosures._evaluated.uploads import Upload, check_upload, split_upload
from protocols.wire.inbox import Incoming


class Uploaded(Answers):
    """The ciphertexts of one Ask; in clear the messages."""

    fixes: ClassVar[bool] = True

    @property
    def protected(self) -> bool:
        """Whether they are encrypted."""
        return self._context.enciphers(self.item)

    def take(self, incoming: Incoming) -> None:
        """Keep one upload; raises BadEnvelope if a witness would refuse it."""
        if self.protected:
            self._check_key(incoming)
            verify = self._context.roster.party(incoming.header.sender).verify
            check_upload(incoming.header, *split_upload(incoming.body), verify)
        super().take(incoming)

    def uploads(self) -> dict[str, Upload]:
        """Return the survivors' uploads by client, sorted, and forget them (O9)."""
        handed = self.handed_over().items()
        return {member: Upload(kept.header, *split_upload(kept.body)) for member, kept in handed}
