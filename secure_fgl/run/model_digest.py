"""Models as files, and the digest of what such a file holds."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np

from audits.evidence.run_files import UNREADABLE
from protocols.messages import Array
from protocols.wire.roster import weights_digest
from secure_fgl.store.files import FILE_LIMIT


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as npz (no pickles); the same arrays in the same order give the same bytes."""
    made = io.BytesIO()
    np.savez(made, allow_pickle=False, **arrays)
    return made.getvalue()


def npz_digest(data: bytes) -> str:
    """Return the digest of a model's arrays; UNREADABLE for anything that we would not write."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
        names = {member.filename for member in members}
        plain = all(name.endswith(".npy") and name[:-4].isidentifier() for name in names)
        large = sum(member.file_size for member in members) > FILE_LIMIT
        if not plain or large or len(names) != len(members):
            return UNREADABLE
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        # Only the bytes that we write: nothing hides in a container beside its arrays.
        return weights_digest(arrays) if npz_bytes(arrays) == data else UNREADABLE
    except Exception:  # a hostile archive must neither crash an audit nor pass it
        return UNREADABLE
