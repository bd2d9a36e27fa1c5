"""``consortium.yaml``: who is asked to take part in a pilot, written down before keys are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import yaml
from pydantic import Field, ValidationError, model_validator

from protocols.strict import Strict, not_yaml, problems, read_yaml
from protocols.wire.roles import Role
from secure_fgl.charters.charter import alike, too_few
from secure_fgl.charters.facts import misnamed_organisation
from secure_fgl.errors import UsageError
from secure_fgl.store.files import settings_text

if TYPE_CHECKING:
    from secure_fgl.charters.facts import Facts

__all__ = ["Consortium"]

_FIX = "write an example with: secure-fgl init DIR --pilot"


Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{4}( [0-9a-f]{4}){7}$")]


class Server(Strict):
    """The engine's server, at the aggregator: the name that sites dial, and its port."""

    name: str = Field(min_length=1, max_length=253)
    port: int = Field(ge=1, le=65_535)


class Member(Strict):
    """One party: its name, its role, and whose it is."""

    name: str = Field(min_length=1, max_length=60)
    role: Role
    organisation: str = Field(min_length=1, max_length=100)


class Consortium(Strict):
    """Server and parties of a pilot.

    Attributes:
        revoked: fingerprints of identities whose keys somebody else may have. Neither they nor
            what they signed as their next identity is taken into a charter. What that one signed
            in turn shows only its own fingerprint: each of a row is listed.
    """

    server: Server
    parties: tuple[Member, ...] = Field(min_length=1, max_length=100_000)
    revoked: tuple[Fingerprint, ...] = Field(default=(), max_length=100_000)

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Consortium:
        if len({member.name for member in self.parties}) < len(self.parties):
            raise ValueError("parties: a name stands twice")
        names = [member.organisation for member in self.parties]
        wrong = [f"parties: an organisation {w}" for w in map(misnamed_organisation, names) if w]
        if wrong := [*wrong, *alike(names)]:
            raise ValueError(wrong[0])
        return self

    @classmethod
    def load(cls, path: str | Path) -> Consortium:
        """Read ``consortium.yaml``.

        Raises:
            UsageError: a key is wrong, or fewer organisations hold data than any policy lets
                through (O10).
        """
        try:
            document = read_yaml(settings_text(Path(path)))
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}).", fix=_FIX) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} is not YAML.", why=not_yaml(error), fix=_FIX) from error
        if not isinstance(document, dict):
            raise UsageError(f"{path} must hold keys and values at its top level.", fix=_FIX)
        try:
            found = cls.model_validate(document)
        except ValidationError as error:
            raise UsageError(
                f"{path} is not a valid consortium.", why=problems(error), fix=_FIX
            ) from error
        owners = [m.organisation for m in found.parties if m.role is Role.CLIENT]
        if wrong := too_few(owners):
            raise UsageError(f"{path} lists {wrong}.")
        return found

    def check(self, announced: Sequence[Facts], server: str) -> None:
        """Hold what parties announced, and the server's name, to what was written down before.

        Raises:
            UsageError: a party is missing, unknown, or announced another role or organisation; or
                its identity is revoked, or was signed by one that is.
        """
        wanted = {m.name: (str(m.role), m.organisation) for m in self.parties}
        found = {f.party.name: (str(f.party.role), f.organisation) for f in announced}
        wrong = [f"{name}: no facts are here" for name in sorted({*wanted} - {*found})]
        wrong += [f"{name}: is not among them" for name in sorted({*found} - {*wanted})]
        for name in sorted({*wanted} & {*found}):
            if wanted[name] != found[name]:
                said, meant = ", ".join(found[name]), ", ".join(wanted[name])
                wrong.append(f"{name}: announced itself as {said}, and is written down as {meant}")
        wrong += [line for facts in announced for line in self._withdrawn(facts)]
        if server != self.server.name:
            wrong.append(f"--server {server}: the server is written down as {self.server.name}")
        if wrong:
            raise UsageError(
                "The parties' facts are not those of the consortium.",
                why="; ".join(wrong[:5]),
                fix="ask these parties, and correct consortium.yaml or make facts anew: "
                "secure-fgl site new",
            )

    def check_member(self, name: str, role: Role, organisation: str) -> None:
        """Raise UsageError unless a party was written down so."""
        said = f"{name}, {role}, {organisation}"
        if said not in {f"{m.name}, {m.role}, {m.organisation}" for m in self.parties}:
            raise UsageError(
                f"The consortium lists no party {said}.",
                why="a charter is drawn up only with parties that were written down before",
                fix="take name, role and organisation as consortium.yaml has them",
            )

    def _withdrawn(self, facts: Facts) -> Iterator[str]:
        name, revoked = facts.party.name, {*self.revoked}
        if facts.fingerprint in revoked:
            yield f"{name}: its identity is revoked; it makes keys anew with site new"
        elif facts.last_fingerprint in revoked:
            yield (
                f"{name}: its identity was signed by one that is revoked, so whoever has that key "
                "may have made it; it makes keys anew with site new"
            )
