"""Options that were given: what has no effect is refused, not ignored."""

from collections.abc import Iterable

import typer

from rheocheck.errors import InputError


def refuse_given(context: typer.Context, names: Iterable[str], where: str) -> None:
    """Refuse options that have no effect in this mode of a command.

    Args:
      context: The command's.
      names: Parameters of the command.
      where: The mode, to go on with "has no effect": "without --sampler".

    Raises:
      InputError: One of them was given on the command line.
    """
    wanted = set(names)
    for parameter in context.command.params:
        if parameter.name not in wanted:
            continue
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name != "DEFAULT":
            raise InputError(
                f"{parameter.opts[0]} was given, which has no effect {where}; required: a command "
                f"line of which every word counts"
            )


def checked_seed(seed: int) -> int:
    """The seed.

    Raises:
      InputError: It is negative or needs more than 63 bits.
    """
    if not 0 <= seed < 2**63:
        raise InputError(f"seed = {seed}; required: at least 0 and below 2**63")
    return seed
