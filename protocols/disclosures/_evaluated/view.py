"""What the aggregator holds of uploads that results are computed on: ciphertexts, signed (O4)."""

from __future__ import annotations

from protocols.disclosures._base.view import Answers
from protocols.disclosures._evaluated.uploads import Upload, check_upload, split_upload
from protocols.wire.inbox import Letter


class Uploaded(Answers):
    """The ciphertexts of one Ask; in clear the messages."""

    @property
    def protected(self) -> bool:
        """Whether they are encrypted."""
        return self._papers.enciphers(self.item)

    def take(self, letter: Letter) -> None:
        """Keep one upload; raises BadEnvelope if a witness would refuse it."""
        if self.protected:
            self._check_key(letter)
            verify = self._papers.roster.party(letter.header.sender).verify
            check_upload(letter.header, *split_upload(letter.body), verify)
        super().take(letter)

    def uploads(self) -> dict[str, Upload]:
        """Return the survivors' uploads by client, sorted, and forget them (O9)."""
        handed = self.handed_over().items()
        return {member: Upload(kept.header, *split_upload(kept.body)) for member, kept in handed}
