"""What can go wrong, as one small family; `exit_code` is what the command line answers with."""

from typing import ClassVar


class AttnvizError(Exception):
    """It could not be done: a damaged file, a missing extra, an output that cannot be written."""

    exit_code: ClassVar[int] = 3


class RequestError(AttnvizError):
    """The request is wrong: the message says what was got, what is allowed and what to type."""

    exit_code: ClassVar[int] = 2
