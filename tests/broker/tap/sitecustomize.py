"""Put in front of a carrier's path by a test: it asks again sooner than in use."""

from __future__ import annotations

import os

if os.environ.get("SECURE_FGL_TEST_HOLD"):
    from secure_fgl.transports.broker import requests

    requests._HOLD_SECONDS = requests._PATIENCE_SECONDS = float(os.environ["SECURE_FGL_TEST_HOLD"])
