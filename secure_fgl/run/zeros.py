"""Encryptions of zero, prepared in a worker process while clients train.

An encryption of zero does not depend on the message; with one at hand, encrypting is an addition
(`crypto.homomorphic.he.Scheme.encrypt`). Whoever knows the zero under an upload reads the upload,
and two uploads on one zero give away their difference. So zeros never leave memory, each is handed
out exactly once, and a forked copy of this process gets none.

The worker is a fresh interpreter, never a fork: two processes that continue from one state of a
generator would encrypt with the same randomness. (The SEAL at hand reads the operating system for
every encryption, so a fork would do; nothing promises that the next one will.) Nor does it come
from `multiprocessing`, whose way to a fresh interpreter runs the user's script a second time. It
is told the scheme's name and the public key, and nothing else.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from crypto.errors import OutOfRange
from crypto.homomorphic.he import NAMES, PublicKey, Scheme, scheme
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step

if TYPE_CHECKING:  # the worker does without
    from protocols.plan.plan import Plan

__all__ = ["AHEAD_FROM", "MEMORY_LIMIT", "Ahead", "ZeroWorker", "worth_it"]

AHEAD_FROM = 8  # ciphertexts in one upload from which on zeros are encrypted ahead of time
MEMORY_LIMIT = 256 * 2**20  # bytes of prepared zeros
_CHUNK = 16  # ciphertexts per message: about 10 ms of work
_ORDER = struct.Struct("<III")  # length of the scheme's name, of the public key, chunk
_PATIENCE_S = 5.0
_NICE = 5  # training comes first


class _Stock:
    """Prepared zeros of one key; one thread fills it, anybody takes."""

    def __init__(self, public_key: bytes, limit: int) -> None:
        self.public_key, self._limit = public_key, limit
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._closed = False
        self._process_id = os.getpid()

    @property
    def size(self) -> int:
        with self._changed:
            return self._size

    def fill(self, pipe: IO[bytes], chunk: int) -> None:
        """Read chunks until the pipe ends or the stock is closed; a torn chunk is dropped."""
        with suppress(OSError, ValueError):
            while self._room(chunk):
                data = pipe.read(chunk)
                if len(data) != chunk:
                    return
                with self._changed:
                    if self._closed:
                        return
                    self._chunks.append(data)
                    self._size += chunk

    def _room(self, chunk: int) -> bool:
        """Wait until one more chunk fits; False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._size + chunk <= self._limit)
            return not self._closed

    def take(self, wanted: int, width: int) -> bytes:
        """Return up to `wanted` bytes, a multiple of `width`, and forget them."""
        if os.getpid() != self._process_id:
            return b""  # a fork has the same zeros as its parent
        out: list[bytes] = []
        with self._changed:
            missing = min(wanted, self._size) // width * width
            self._size -= missing
            while missing:
                data = self._chunks.popleft()
                if len(data) > missing:
                    self._chunks.appendleft(data[missing:])
                    data = data[:missing]
                out.append(data)
                missing -= len(data)
            self._changed.notify_all()
        return b"".join(out)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._size = 0
            self._changed.notify_all()


class ZeroWorker:
    """Keeps a stock of zero-encryptions under one key; use it as a context manager.

    Without a worker (not started, not startable, died) every call of `take` computes what it
    returns, and nothing else changes.

    Args:
        scheme_name: one of `crypto.homomorphic.he.NAMES`.

    Raises:
        InvalidKey: unknown name.
        SelfTestFailed: the scheme does not work on this installation.
    """

    def __init__(self, scheme_name: str = NAMES[0]) -> None:
        self._scheme: Scheme = scheme(scheme_name)
        self._stock: _Stock | None = None
        self._end: weakref.finalize[Any, ZeroWorker] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def ready(self) -> int:
        """How many zeros lie ready."""
        return self._stock.size // self._scheme.ciphertext_bytes if self._stock else 0

    @property
    def process_id(self) -> int | None:
        """The worker's process, None if there is none or it has ended."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and alive else None

    def start(
        self, public_key_raw: bytes, ciphertexts_per_upload: int, uploads_ahead: int = 1
    ) -> None:
        """Begin to prepare zeros under this key; whatever was prepared before is dropped.

        Args:
            public_key_raw: the key's wire form.
            ciphertexts_per_upload: how many zeros one upload takes.
            uploads_ahead: for how many uploads to keep zeros ready, as far as `MEMORY_LIMIT`
                allows.

        Raises:
            InvalidKey, SecretKeyRefused: no public key of this scheme.
            OutOfRange: a number below 1.
        """
        if min(ciphertexts_per_upload, uploads_ahead) < 1:
            raise OutOfRange("Zeros are prepared for at least one ciphertext and one upload.")
        self._scheme.load_public(public_key_raw)  # nothing unchecked goes to another process
        self.close()
        if not self._scheme.offline:
            return
        chunk = min(_CHUNK, ciphertexts_per_upload * uploads_ahead)
        width = self._scheme.ciphertext_bytes
        # One chunk more: uploads take odd numbers, and what does not fit whole is not fetched.
        limit = (ciphertexts_per_upload * uploads_ahead + 2 * chunk) * width
        stock = _Stock(public_key_raw, min(limit, MEMORY_LIMIT))
        name = self._scheme.name.encode("ascii")
        order = _ORDER.pack(len(name), len(public_key_raw), chunk) + name + public_key_raw
        with suppress(OSError):  # no process to be had: `take` computes
            process = _spawn()
            self._end = weakref.finalize(self, _stop, process, stock, os.getpid())
            self._process, self._stock = process, stock
            arguments = (process, order, stock, chunk * width)
            threading.Thread(target=_converse, args=arguments, name="zeros", daemon=True).start()

    def take(self, key: PublicKey, ciphertexts: int) -> bytes:
        """Return so many zeros in wire form, the prepared ones first, each given out only once.

        Raises:
            OutOfRange: a number below 1.
            InvalidKey: a key of another scheme.
        """
        key.use(self._scheme.name)
        width, ready = self._scheme.ciphertext_bytes, b""
        stock = self._stock
        if stock is not None and ciphertexts > 0 and key.raw == stock.public_key:
            ready = stock.take(ciphertexts * width, width)
        missing = ciphertexts - len(ready) // width
        if ready and not missing:
            return ready
        return ready + self._scheme.zeros(key, missing)

    def close(self) -> None:
        """End the worker and drop what it prepared. Harmless when repeated; `take` still works."""
        end, self._end, self._stock, self._process = self._end, None, None, None
        if end is not None:
            end()


class Ahead:
    """Zeros for all clients of one process; a worker starts with the first upload under a key.

    Args:
        scheme: the encryption.
        uploads: of one round.
    """

    def __init__(self, scheme: Scheme | None, uploads: int) -> None:
        self._worker = ZeroWorker(scheme.name if scheme else NAMES[0])
        self._uploads, self._key = uploads, b""

    def take(self, key: PublicKey, ciphertexts: int) -> bytes:
        """Return so many zeros under this key, prepared or made now."""
        if key.raw != self._key:
            self._key = key.raw
            self._worker.start(key.raw, ciphertexts, self._uploads)
        return self._worker.take(key, ciphertexts)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def worth_it(plan: Plan, scheme: Scheme | None) -> bool:
    """Tell whether a worker that encrypts zeros ahead of time saves more than its start."""
    if scheme is None or not scheme.offline:
        return False
    sums = plan.all_of(Disclosure.SUM, Step.UP)
    return any(item.body >= AHEAD_FROM * scheme.ciphertext_bytes for item in sums)


def _spawn() -> subprocess.Popen[bytes]:
    """Start a fresh interpreter on this file, deaf to the terminal's Ctrl-C."""
    house = str(Path(__file__).resolve().parent.parent)
    paths = [house, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "secure_fgl.run.zeros"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )


def _converse(process: subprocess.Popen[bytes], order: bytes, stock: _Stock, chunk: int) -> None:
    """Hand the order over and collect; runs in a thread, as both may block."""
    if process.stdin is None or process.stdout is None:
        return
    with suppress(OSError, ValueError), process.stdin as pipe:
        pipe.write(order)
    with process.stdout as pipe:
        stock.fill(pipe, chunk)


def _stop(process: subprocess.Popen[bytes], stock: _Stock, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork: neither end its parent's worker nor wait for locks held over there
    stock.close()
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _serve() -> None:
    """The worker: read one order, write zeros until nobody reads them any more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that scratch files are cleared
    # A library that talks on standard output must not talk into the zeros.
    with os.fdopen(os.dup(1), "wb", buffering=0) as out:
        os.dup2(2, 1)
        if hasattr(os, "nice"):
            os.nice(_NICE)
        source = sys.stdin.buffer
        name_length, key_length, chunk = _ORDER.unpack(source.read(_ORDER.size))
        he = scheme(source.read(name_length).decode("ascii"))
        key = he.load_public(source.read(key_length))
        with suppress(BrokenPipeError):
            while True:
                data = memoryview(he.zeros(key, chunk))
                while data:
                    data = data[out.write(data) :]


if __name__ == "__main__":
    _serve()
