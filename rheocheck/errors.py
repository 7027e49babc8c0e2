"""The few errors that rheocheck raises on purpose; everything else is a defect.

The command line turns a RheocheckError into one paragraph and exit code 2. `shown` prints what a
message names, whatever it is: Python itself refuses to print an int of 5,000 digits.
"""

import numbers
from collections.abc import Callable, Sequence

MOST_SHOWN = 60
MOST_OF_ERROR_SHOWN = 300
MOST_TOKENS_SHOWN = 30


class RheocheckError(Exception):
    """Base of all errors that a user's input can cause."""


class InputError(RheocheckError, ValueError):
    """A value that was given is not legal; the message names it and what was required."""


class ConfigError(InputError):
    """A setting of a configuration is out of range."""


class LawError(InputError):
    """A law is no probability distribution: wrong length, negative mass, or a sum other than 1."""


class ProgramError(RheocheckError):
    """A program under the choice oracle misbehaved; the message gives the choices before it."""


class BudgetExceededError(RheocheckError):
    """An enumeration met its bound before it was complete: the result is unknown, never a pass."""


class WeightsError(InputError):
    """A checkpoint is missing, truncated, or not of the layout that its reader expects."""


class BackendError(RheocheckError):
    """A model backend failed the start-up check: its tree logits are not those of its paths."""


class TraceError(InputError):
    """A trace is truncated, corrupt or not of the layout asked for; names record and shard."""


def shown(value: object, limit: int = MOST_SHOWN) -> str:
    """A value as a message prints it: on one line, cut to `limit` characters, never an error.

    Numbers are printed as people write them (1/3), everything else by its repr.
    """
    return _one_line(value, str if isinstance(value, numbers.Number) else repr, limit)


def shown_with_type(value: object) -> str:
    """The value's repr, cut as `shown` does, and its type."""
    return f"{_one_line(value, repr, MOST_SHOWN)} of type {type(value).__name__}"


def shown_path(path: Sequence[object]) -> str:
    """A path of tokens as a message prints it; of a long one the first tokens and the length."""
    tokens = [shown(token) for token in path[:MOST_TOKENS_SHOWN]]
    if len(path) > MOST_TOKENS_SHOWN:
        return f"({', '.join(tokens)}, ... {len(path)} tokens)"
    return f"({', '.join(tokens)}{',' if len(tokens) == 1 else ''})"


def shown_error(error: BaseException) -> str:
    """Type and text of an error of other code."""
    return f"{type(error).__name__}: {_one_line(error, str, MOST_OF_ERROR_SHOWN)}"


def _one_line(value: object, printed: Callable[[object], str], limit: int) -> str:
    try:
        text = " ".join(printed(value).split())
    except Exception:  # too many digits to print, or a repr of the user's own that fails
        text = f"<{type(value).__name__} that cannot be printed>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
