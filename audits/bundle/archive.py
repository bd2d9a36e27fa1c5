"""The zip of a bundle: the same files always give the same bytes, and no other bytes are read.

Files are stored, not compressed: then nothing can swell when it is read, and the bytes do not
depend on a compressor's version. What was read is packed again and compared, so that not one byte
of the archive itself (order, times, attributes, gaps, comments) can be changed unseen.
"""

from __future__ import annotations

import hmac
import io
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence

from audits.evidence.run_files import fail
from protocols.errors import EvidenceError

__all__ = ["BUNDLE_LIMIT", "MAX_FILES", "PATH", "pack", "unpack"]

BUNDLE_LIMIT = 1 << 30  # bytes; checked before anything is read
MAX_FILES = 20_000  # a party has two
PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,99}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say: it says nothing
_UNIX, _MODE = 3, (stat.S_IFREG | 0o600) << 16


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of these files, by path.

    Raises:
        EvidenceError: at step ``manifest``: more or larger files than a reader accepts, or a path
            that is not one or two plain names.
    """
    if len(files) > MAX_FILES or sum(map(len, files.values())) > BUNDLE_LIMIT:
        fail("manifest", "the run is too large for one bundle")
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            if not PATH.fullmatch(path):
                fail("manifest", "a file has a path that no bundle holds")
            member = zipfile.ZipInfo(path, _TIME)
            member.create_system, member.external_attr = _UNIX, _MODE
            archive.writestr(member, files[path])
    return raw.getvalue()


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip that `pack` made; nothing is written anywhere.

    Raises:
        EvidenceError: at step ``manifest``, for anything that `pack` would not have made.
    """
    if len(data) > BUNDLE_LIMIT:
        fail("manifest", f"the bundle is larger than {BUNDLE_LIMIT} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check(members, len(data))
            files = {member.filename: archive.read(member) for member in members}
    except EvidenceError:
        raise
    except Exception:  # a hostile archive must neither crash a verifier nor pass it
        raise EvidenceError("manifest", "the file is not an intact zip archive") from None
    if not hmac.compare_digest(pack(files), data):
        fail(
            "manifest",
            "the archive is not laid out as bundles are: bytes stand before, between or behind its "
            "files, or their order, times or attributes were changed",
        )
    return files


def _check(members: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Refuse by the directory alone what should not be read at all."""
    if len(members) > MAX_FILES:
        fail("manifest", f"the archive holds more than {MAX_FILES} files")
    names = [member.filename for member in members]
    if len(set(names)) != len(names):
        fail("manifest", "the archive holds two files of one name")
    for member in members:
        if not PATH.fullmatch(member.orig_filename):
            fail("manifest", "the archive holds a path that leads out of it, or is not plain")
        if stat.S_ISLNK(member.external_attr >> 16):
            fail("manifest", "the archive holds a link")
        if member.flag_bits & 1:
            fail("manifest", "the archive holds an encrypted file")
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            fail("manifest", "the archive holds a compressed file; bundles are stored as they are")
    if sum(member.file_size for member in members) > size:
        fail("manifest", "the files of the archive overlap")
