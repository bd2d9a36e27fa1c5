"""Ctrl-C takes effect between exchanges; a third one does not wait."""

from __future__ import annotations

import os
import signal

import pytest

from secure_fgl.run.driver import PATIENCE, deferred_interrupts


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_presses_only_ask_to_stop() -> None:
    with deferred_interrupts() as stopped:
        assert not stopped()
        for _ in range(PATIENCE - 1):
            press()
            assert stopped()


def test_an_impatient_press_stops_at_once() -> None:
    with deferred_interrupts(), pytest.raises(KeyboardInterrupt):
        for _ in range(PATIENCE):
            press()


def test_the_handler_before_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
