"""Of which versions the programs are with which parties agreed to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata

from secure_fgl.errors import UsageError

__all__ = ["check_versions", "installed", "misstated"]

PROGRAMS = ("secure-fgl",)
_LONGEST = 40


def installed() -> dict[str, str]:
    """Return the version of each program in this environment; empty where it is not installed."""
    return {name: _version(name) for name in PROGRAMS}


def check_versions(agreed: Mapping[str, str]) -> None:
    """See that the programs of this environment are of the versions that a charter names.

    Two versions may read one message differently, and a plan's digests cover our code alone. One
    that is not installed here, or was not where the charter was drawn up, is not compared.

    Raises:
        UsageError: one is of another version; both numbers are named.
    """
    for name, here in installed().items():
        wanted = agreed.get(name, "")
        if here and wanted and here != wanted:
            raise UsageError(
                f"The charter is for {name} {wanted}, and this environment has {name} {here}.",
                why="all parties of a run use one version; nothing was sent",
                fix=f"install {name}=={wanted} here, or draw up a charter with what all have",
            )


def misstated(versions: Mapping[str, str]) -> Iterator[str]:
    """Say why these are not what a charter says of versions."""
    if set(versions) != set(PROGRAMS):
        yield f"it does not name the version of {' and '.join(PROGRAMS)}"
    for version in versions.values():
        if not isinstance(version, str) or len(version) > _LONGEST or not version.isprintable():
            yield "it names a version that is none"
            return


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
