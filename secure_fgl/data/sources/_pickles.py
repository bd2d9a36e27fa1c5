"""No pickle is opened while data are read: opening one runs code that its writer chose.

Libraries open pickles where nobody expects it: PyTorch Geometric for raw files of Planetoid and for
what it noted beside processed files, numpy for arrays of objects. Python tells of every name that a
pickle looks up (the audit event ``pickle.find_class``), whoever opens it; without a name a pickle
holds nothing but plain values. So within :func:`no_pickles` each such look-up is refused, and torch
loads tensors alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["PickleRefused", "no_pickles"]

_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


class PickleRefused(ValueError):
    """A file of a data set holds a pickle that looks up a name, and was not opened further."""


_refusing = 0  # how many callers read data now, in all threads of this process
_hooked = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _refusing and event == "pickle.find_class":
        raise PickleRefused("a file holds a pickle with names in it, which could run code")


@contextmanager
def no_pickles() -> Iterator[None]:
    """Refuse every pickle that looks up a name, in this process, until the block ends.

    Raises:
        PickleRefused: within the block, from whatever opened the pickle.
    """
    global _refusing, _hooked  # noqa: PLW0603 - audit hooks are of the whole process, and stay
    if not _hooked:
        sys.addaudithook(_refuse)
        _hooked = True
    before = os.environ.get(_FORCED)
    _refusing += 1
    os.environ[_FORCED] = "1"
    try:
        yield
    finally:
        _refusing -= 1
        if not _refusing:
            if before is None:
                os.environ.pop(_FORCED, None)
            else:
                os.environ[_FORCED] = before
