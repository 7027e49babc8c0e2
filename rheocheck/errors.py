"""The few errors that rheocheck raises on purpose; everything else is a defect.

The command line turns a RheocheckError into one paragraph and exit code 2.
"""


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
