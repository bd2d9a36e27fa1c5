"""Slots with pair secrets alone, for sums that one client reads over its neighbours (ADR 0053).

No seed of such a slot is drawn, shared or locked. So nobody can take its masks off but by adding up
what all members of a group sent, and what lacks one of them stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crypto.handles import Mute
from crypto.samplers import derive
from protocols.errors import LocalProtocolError
from protocols.keys.seeds import pair_key
from protocols.keys.slots import Slot

Kept = dict[str, dict[str, bytes]]


class PairSlots(Mute):
    """One client's pair secrets of such slots in one epoch; each slot is used once.

    Args:
        name: of this client.
        slots: of the epoch.
    """

    def __init__(self, name: str, slots: Sequence[Slot]) -> None:
        self._name = name
        self._secrets: dict[Slot, dict[str, bytes]] = {slot: {} for slot in slots}

    def kept(self) -> Kept:
        """Return the secrets of slots that were not used, for a locked state."""
        return {slot.label: dict(secrets) for slot, secrets in self._secrets.items()}

    @classmethod
    def of_kept(cls, name: str, kept: Kept) -> PairSlots:
        """Return what `kept` was taken from."""
        made = cls(name, ())
        made._secrets = {Slot.of_label(label): dict(found) for label, found in kept.items()}
        return made

    def fill(self, secrets: Mapping[str, bytes]) -> None:
        """Take the epoch's secrets, by peer."""
        for slot in self._secrets:
            self._secrets[slot] = {p: derive(s, "slot", slot.label) for p, s in secrets.items()}

    def paired(self, slot: Slot, members: Sequence[str]) -> bool:
        """Tell whether this client shares a secret of a slot with all of these, itself aside."""
        return set(members) - {self._name} <= self._secrets.get(slot, {}).keys()

    def keys(
        self, slot: Slot, groups: Mapping[str, Sequence[str]], label: Sequence[str]
    ) -> dict[str, tuple[list[bytes], list[bytes]]]:
        """Return the keys of masks that cancel within each of several groups that overlap.

        Each group has keys of its own, from the pairs' secrets of one slot, which are forgotten
        with it: a slot serves one vector a group (O6).

        Args:
            slot: of this epoch.
            groups: by what tells them apart (who reads the sum), their members, this client one.
            label: what every mask is bound to besides.

        Returns:
            By group, the keys of what this client adds and of what it takes away.

        Raises:
            LocalProtocolError: the slot was used before, or is not of this epoch, or a member
                shares no secret with this client.
        """
        if slot not in self._secrets:
            raise LocalProtocolError("The secrets of this slot were used, or are not here (O6).")
        if not all(self.paired(slot, members) for members in groups.values()):
            raise LocalProtocolError("A neighbour shares no secret with this client.")
        secrets, found = self._secrets.pop(slot), {}
        for group, members in groups.items():
            keys = {p: pair_key(secrets[p], (*label, group)) for p in members if p != self._name}
            plus = [key for peer, key in keys.items() if self._name < peer]
            found[group] = plus, [key for peer, key in keys.items() if self._name > peer]
        return found
