"""Before a key or a passphrase is read, memory is closed to the user's other processes."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from secure_fgl.charters import identity_file
from secure_fgl.errors import UsageError
from secure_fgl.isolation import kernel
from secure_fgl.store import bundles, captures, client_models

READERS: dict[str, tuple[object, Callable[[Path], object]]] = {
    "audit bundle, approve": (bundles, lambda folder: bundles.load_key(folder / "key.pem")),
    "--passphrase-file": (identity_file, lambda folder: identity_file.from_file(folder / "words")),
    "--passphrase": (identity_file, lambda folder: identity_file.asked_twice("identity.json")),
    "passphrase at start": (
        identity_file,
        lambda folder: identity_file.of_this_site("identity.json"),
    ),
    "audit attack": (captures, lambda folder: captures.Captures("ab" * 16, folder).open("a", {})),
    "site model": (
        client_models,
        lambda folder: client_models.ClientModels("ab" * 16, folder, folder).open("a"),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_memory_is_closed_before_a_key_or_passphrase_is_read(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is read where memory cannot be closed; the control reads on to the end."""
    monkeypatch.delenv(identity_file.FILE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(getpass, "getpass", lambda asked: pytest.fail("it was asked for"))
    where, read = READERS[reader]

    def refused() -> None:
        raise UsageError("This process cannot close its memory.")

    monkeypatch.setattr(where, "close_memory", refused)
    with pytest.raises(UsageError, match="cannot close its memory"):
        read(tmp_path)
    monkeypatch.setattr(where, "close_memory", lambda: None)
    monkeypatch.setattr(getpass, "getpass", lambda asked: "short")
    with pytest.raises(UsageError) as control:
        read(tmp_path)
    assert "close its memory" not in str(control.value)


@pytest.mark.parametrize("reader", READERS)
def test_it_is_the_kernel_s_call_that_they_make(reader: str) -> None:
    assert READERS[reader][0].close_memory is kernel.close_memory  # type: ignore[attr-defined]
