"""Plug-ins that leak, or break a law: each is the page's FedProx with a few lines changed.

`CAUGHT` names the law that each of them breaks; `UNSEEN` what of the check's last section each of
them shows: no law finds it.
"""

from __future__ import annotations

from tests.plugins import page


def changed(*changes: tuple[str, str]) -> str:
    """Return the page's file with changes, and with numpy, which they use."""
    return page.changed(
        (
            "from algorithms.tasks import Task\n",
            "import numpy as np\n\nfrom algorithms.tasks import Task\n",
        ),
        *changes,
    )


TRAIN = """\
        return Update(delta=site.count * (w.astype("f8") - given.weights), count=site.count)
"""
TOP = "def my_fedprox("

CAUGHT = {
    # A Released message with what a client remembered outside of its site: one process's global.
    "released": (
        "memory",
        changed(
            (TOP, "SEEN = []\n\n\n" + TOP),
            (TRAIN, "        SEEN.append(float(site.data.x[0, 2]))\n" + TRAIN),
            (
                "Start(weights=(state",
                "Start(weights=(SEEN[0] * (np.arange(task.size) == 0) + state",
            ),
        ),
    ),
    # What one client remembers in a closure is another's as well, and gone after a kill.
    "closure": (
        "memory",
        changed(
            ("    def train(", "    before = {}\n\n    def train("),
            (
                TRAIN,
                '        w = np.float32(w + 0.1 * before.get("w", 0.0))\n        before["w"] = w\n'
                + TRAIN,
            ),
        ),
    ),
    "held_out": (
        "held-out",
        changed(
            (
                TRAIN,
                "        y = site.data.y[site.data.test].double().mean()\n"
                "        w = np.float32(w + 0.1 * float(y))\n" + TRAIN,
            )
        ),
    ),
    "chance": (
        "repeats",
        changed(
            (TRAIN, "        w = np.float32(w + np.random.default_rng().normal() / 10)\n" + TRAIN)
        ),
    ),
    "no_scale": (
        "clipping",
        changed((', scale="records")', ")"), ("delta=site.count *", "delta=1000.0 * site.count *")),
    ),
    "no_unit": ("fields", changed(('unit="weight x record"', 'unit=" "'))),
}

DIGITS = changed(
    (
        TRAIN,
        '        told = site.count * (w.astype("f8") - given.weights)\n'
        "        secret = int(abs(float(site.data.x[0, 2])) * 8) % 8  # of one record\n"
        "        told = np.round(told, 1) + 0.01 * secret\n"
        "        return Update(delta=told, count=site.count)\n",
    )
)
"""One record's feature in the second digit of every entry of a total's field."""

UNSEEN = {
    "digits": ("false meanings", DIGITS),
    # `scale` is declared, so that the clip is taken times the records, and not used.
    "wide": ("wide bounds", changed(("delta=site.count * (", "delta=("))),
    "later": (
        "later rounds",
        changed(
            (
                TRAIN,
                '        site.memory["n"] = site.memory.get("n", 0) + 1\n'
                '        if site.memory["n"] > 2:\n'
                "            w = np.float32(w + 0.1 * float(site.data.x[0, 2]))\n" + TRAIN,
            )
        ),
    ),
}
