"""What the key authority does with it: it opens what witnesses signed."""

from __future__ import annotations

from protocols.disclosures._evaluated.key_authority import Revealing

KEY_AUTHORITY = Revealing
