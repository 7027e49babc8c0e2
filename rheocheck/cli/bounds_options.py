"""Options that the commands of `rheocheck bounds` share, and what their values must be."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rheocheck.cli.options import refuse_given
from rheocheck.errors import InputError

if TYPE_CHECKING:
    from rheocheck.config import SpeculationConfig

JsonFile: TypeAlias = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")
]
Seed: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Of laws, models and draws.")]
Jobs: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Most processes; changes no result.")
]
FamilyName: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="dirichlet:A, zipf or zipf-near:S.")
]
Model: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Real pair: tiny, llama31, vicuna13b, dsl8b.")
]
TargetFolder: TypeAlias = Annotated[
    Path | None, typer.Option("--target", metavar="DIR", help="Target checkpoint of your own.")
]
DraftFolder: TypeAlias = Annotated[
    Path | None, typer.Option("--draft", metavar="DIR", help="EAGLE-3 head of your own.")
]
Prompts: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --model: .jsonl, or text by line.")
]
NumPrompts: TypeAlias = Annotated[int, typer.Option(metavar="N", help="With --model.")]
Rounds: TypeAlias = Annotated[int, typer.Option(metavar="N", help="With --model: a prompt.")]
Device: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="With --model.")]
Temperature: TypeAlias = Annotated[
    float, typer.Option(metavar="T", help="Of target and draft; scores stay at 1.")
]
TopK: TypeAlias = Annotated[int, typer.Option(metavar="K", help="Children of a node.")]
NumTop: TypeAlias = Annotated[int, typer.Option(metavar="M", help="Deterministic ones of them.")]
Budget: TypeAlias = Annotated[int, typer.Option(metavar="R", help="Drafted nodes kept.")]
Depth: TypeAlias = Annotated[int, typer.Option(metavar="D", help="Drafted levels.")]
Support: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Draft tokens kept.")]


def is_real(model: str | None, target: Path | None, draft: Path | None, laws: Path | None) -> bool:
    """Whether laws come from a real pair.

    Raises:
      InputError: A file of laws was given too.
    """
    real = not (model is None and target is None and draft is None)
    if real and laws is not None:
        raise InputError(f"{laws} and --model were given; required: one source of laws")
    return real


def refuse_for_source(
    context: typer.Context, real: bool, laws: Path | None, of_random: Sequence[str]
) -> None:
    """Refuse options of another source of laws than the one that was chosen.

    Args:
      context: The command's.
      real: Whether laws come from a real pair.
      laws: File of laws, or None.
      of_random: Parameters that random laws are made from.

    Raises:
      InputError: An option of another source was given.
    """
    if not real:
        of_pairs = ("prompts", "num_prompts", "rounds", "device")
        refuse_given(context, of_pairs, "without --model")
    else:
        refuse_given(context, of_random, "with --model")
    if laws is not None:
        refuse_given(context, (*of_random, "temperature"), f"on the laws of {laws}")


def scheme_of(
    top_k: int, num_top: int, budget: int, depth: int, support_size: int
) -> "SpeculationConfig":
    """The scheme of these counts.

    Raises:
      ConfigError: One is out of range.
    """
    from rheocheck.config import SpeculationConfig

    return SpeculationConfig(
        top_k=top_k, num_top=num_top, budget=budget, depth=depth, support_size=support_size
    )


def span(text: str) -> tuple[int, int]:
    """Smallest and largest of a range such as 6-50, or of one number.

    Raises:
      InputError: Anything else.
    """
    low, _, high = text.partition("-")
    is_range = text.isascii() and low.isdigit() and (high or low).isdigit()
    if not is_range or not 1 <= int(low) <= int(high or low):
        raise InputError(
            f"vocab = {text!r}; required: a number such as 50, or a range such as 6-50"
        )
    return int(low), int(high or low)


def positive(name: str, value: int) -> int:
    """The value of an option that counts.

    Raises:
      InputError: It is below 1.
    """
    if value < 1:
        raise InputError(f"{name} = {value}; required: at least 1")
    return value


def make_folder(folder: Path) -> None:
    """Make a folder for output, before the work.

    Raises:
      InputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}") from None
