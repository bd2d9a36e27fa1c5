"""What every secret-bearing object inherits: a mute face and no way out of the process."""

from typing import NoReturn

__all__ = ["Mute"]


class Mute:
    """Base of objects that hold secrets: says only its type, refuses to be pickled or copied.

    Python cannot promise that memory is wiped; what it can promise is that a secret is not
    written down by accident in a log, a traceback, a checkpoint or another process.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # `copy` comes this way too.
        raise TypeError(
            f"{type(self).__name__} holds a secret and refuses to be pickled or copied; "
            "hand on its public part instead."
        )
