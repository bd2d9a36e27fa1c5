"""What is wrong with a file of the user's own: where, never what stands there."""

from __future__ import annotations

from pathlib import Path

from secure_fgl.errors import UsageError

__all__ = ["OwnDataError", "no_tables"]


class OwnDataError(UsageError):
    """A file or folder of the user's own data that cannot be used.

    The text names file, row and column. It holds no value, id or label: it may end up in a log that
    others read. Column names are those of `spec.yaml` and of the layout, which all sites know.

    Args:
        path: the file or folder.
        what: what is wrong there, a sentence without its full stop.
        row: for example ``line 7`` (CSV, as a text editor counts) or ``row 5`` (from 0).
        column: the column's name, or the tensor's.
        why: the likely cause.
        fix: what to do.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        row: str = "",
        column: str = "",
        why: str = "",
        fix: str = "",
    ) -> None:
        self.path, self.row, self.column = path, row, column
        place = [str(path), row, f"column {column!r}" if column else ""]
        super().__init__(f"{', '.join(part for part in place if part)}: {what}.", why=why, fix=fix)


def no_tables(folder: Path, what: str) -> OwnDataError:
    """The error for a folder beside ``spec.yaml`` that is no site's, or not yet."""
    why = "every folder beside spec.yaml counts as a site's"
    fix = "put the site's tables there (docs/own-data.md), or take the folder away"
    return OwnDataError(folder, what, why=why, fix=fix)
