"""A YAML text is read in one way, or refused with its line."""

from __future__ import annotations

import pytest
import yaml

from protocols.strict import DEPTH, read_yaml
from secure_fgl.config import Config
from secure_fgl.errors import UsageError

REFUSED = {
    "a key twice": ("seed: 1\nrounds: 2\nseed: 3\n", 3),
    "a key twice, deeper": ("a:\n  b: 1\n  b: 1\n", 3),
    "octal": ("seed: 010\n", 1),
    "octal with a letter": ("a: 1\nseed: 0o17\nb: 0x1F\n", 3),
    "base 60": ("a: 1\ntime: 1:30\n", 2),
    "base 60 with a fraction": ("time: 1:30.5\n", 1),
    "underscores": ("seed: 1_000\n", 1),
    "binary": ("seed: 0b11\n", 1),
    "an anchor": ("a: &x 1\n", 1),
    "an alias": ("a: &x [1]\nb: *x\n", 1),
    "65 bits": (f"seed: {1 << 64}\n", 1),
    "64 bits below zero": (f"a: 1\nseed: -{(1 << 63) + 1}\n", 2),
    "a million digits": ("seed: " + "9" * 100_000, 1),
    "too deep": ("a: " + "[" * DEPTH + "1" + "]" * DEPTH, 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_with_its_line(name: str) -> None:
    text, line = REFUSED[name]
    with pytest.raises(yaml.YAMLError) as caught:
        read_yaml(text)
    assert f"line {line}," in str(caught.value)
    assert "seed:" not in str(caught.value)  # nothing of the text is repeated


def test_what_is_plain_is_read() -> None:
    text = "a: [0, -5, +3, 12]\nb: 1.0e-4\nc: .5\nd: '010'\ne: 1e3x\nf: {g: [[[1]]]}\nh: -0.0\n"
    found = read_yaml(text)
    assert found["a"] == [0, -5, 3, 12] and found["b"] == 1e-4 and found["c"] == 0.5
    assert found["d"] == "010" and found["e"] == "1e3x" and found["f"] == {"g": [[[1]]]}
    assert read_yaml(f"{(1 << 64) - 1}") == (1 << 64) - 1
    assert read_yaml("[" * (DEPTH - 1) + "1" + "]" * (DEPTH - 1))
    assert read_yaml("a: 1\nA: 2\n'1': 3\n1: 4\n") == {"a": 1, "A": 2, "1": 3, 1: 4}


@pytest.mark.parametrize(
    "text", ["a: 2001-99-99", "a: !!bool x", "a: !!timestamp x", "a: !!float .", "a: !!set x"]
)
def test_what_a_tag_cannot_make_of_a_value_is_refused_as_yaml(text: str) -> None:
    """YAML's own constructors raise whatever Python raises; texts of others come here, too."""
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)
    with pytest.raises(UsageError):
        Config.of_others(text)
