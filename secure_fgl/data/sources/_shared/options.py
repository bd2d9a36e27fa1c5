"""Options that several sources know, checked without looking at a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from secure_fgl.data._folder import unknown

__all__ = ["check_known", "flag", "fold", "published", "whole"]


def check_known(name: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse an option that the set does not know.

    Raises:
        ValueError: names the option and the nearest known one.
    """
    known = tuple(known)
    if options and not known:
        raise ValueError(
            f"the data set {name!r} takes no options, and was given: {', '.join(sorted(options))}"
        )
    for option in options:
        if option not in known:
            raise unknown(f"option of the data set {name!r}", option, known)


def flag(name: str, options: Mapping[str, Any], option: str) -> bool:
    """Whether a yes-or-no option is on; off where it was not given.

    Raises:
        ValueError: it is neither true nor false.
    """
    value = options.get(option, False)
    if not isinstance(value, bool):
        raise ValueError(f"the option {option} of the data set {name!r} is true or false")
    return value


def published(name: str, options: Mapping[str, Any]) -> bool:
    """Whether `split: published` was given.

    Raises:
        ValueError: another word was given.
    """
    if "split" not in options:
        return False
    if options["split"] != "published":
        raise ValueError(
            f"the option split of the data set {name!r} can only be 'published'; leave it out and "
            "the split is drawn per run, in the shares of data.split"
        )
    return True


def fold(name: str, options: Mapping[str, Any], folds: int) -> int:
    """Which of several published splits, from 0; the first where none was named.

    Raises:
        ValueError: out of range, or without `split: published`.
    """
    if "fold" not in options:
        return 0
    if not published(name, options):
        raise ValueError(f"the option fold of the data set {name!r} needs split: published")
    value = whole(name, options, "fold", 0)
    if value >= folds:
        raise ValueError(f"the option fold of the data set {name!r} is 0 to {folds - 1}")
    return value


def whole(name: str, options: Mapping[str, Any], option: str, least: int) -> int:
    """An option that is a whole number.

    Raises:
        ValueError: missing, something else, or below `least`.
    """
    value = options.get(option)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"the option {option} of the data set {name!r} must be a whole number of {least} or "
            "more"
        )
    return value
