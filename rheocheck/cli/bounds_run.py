"""One run of a `rheocheck bounds` command: models, progress, report, exit."""

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rheocheck.certificate import EXIT_CODES, Report, StageResult, environment, overall_verdict
from rheocheck.cli.bounds_options import positive
from rheocheck.cli.options import checked_seed
from rheocheck.cli.outputs import check_outputs
from rheocheck.errors import InputError
from rheocheck.text import shell_word

if TYPE_CHECKING:
    from rheocheck.bounds.real import RealRun
    from rheocheck.config import SpeculationConfig
    from rheocheck.models.registry import Pair


class Run:
    """One run of a command: its replay line, its report, its exit."""

    def __init__(
        self,
        command: str,
        json_file: Path | None,
        seed: int,
        file: Path | None,
        options: dict[str, Any],
    ) -> None:
        """Start the clock.

        Args:
          command: Name of the command.
          json_file: Where the report goes, or None.
          seed: Of everything random.
          file: File of laws, or None.
          options: Option -> value, for the replay line; None where it was not given.

        Raises:
          InputError: The report cannot be written there, or the seed is out of range.
        """
        check_outputs([json_file], [file])
        self.started = time.perf_counter()
        self.command = command
        self.json_file = json_file
        self.seed = checked_seed(seed)
        self.file = file
        self.options = dict(options)
        self.model = ""

    @property
    def replay(self) -> str:
        """A shell line that repeats the run."""
        words = ["rheocheck", "bounds", self.command, *([str(self.file)] if self.file else [])]
        for name, value in (self.options | {"seed": self.seed}).items():
            for item in value if isinstance(value, list) else [value]:
                words += [] if item is None else [f"--{name}", str(item)]
        return " ".join(map(shell_word, words))

    def bars(self) -> Any:
        """Progress bars on standard error."""
        from rich.console import Console

        from rheocheck.cli.console import progress_bars

        return progress_bars(Console(stderr=True))

    def finish(
        self, stages: Sequence[StageResult], show: Callable[[Sequence[StageResult], Any], None]
    ) -> None:
        """Print, write and exit.

        Raises:
          Exit: Always, with the verdict's code.
        """
        from rich.console import Console

        from rheocheck.cli.bounds_tables import print_verdicts

        required = [stage.name for stage in stages if stage.claim is not None]
        report = Report(
            command=f"bounds {self.command}",
            verdict=overall_verdict(stages, required),
            claims=[stage.claim for stage in stages if stage.claim is not None],
            settings={name: plain(value) for name, value in self.options.items()}
            | {"seed": self.seed},
            stages=list(stages),
            environment=environment(),
            seconds=time.perf_counter() - self.started,
        )
        console = Console(highlight=False)
        show(stages, console)
        print_verdicts(report, console)
        if self.json_file is not None:
            report.write_json(self.json_file)
        raise typer.Exit(EXIT_CODES[report.verdict])


def decode(
    run: Run, model: str | None, target: Path | None, draft: Path | None, prompts: Path | None,
    num_prompts: int, rounds: int, device: str, temperature: float, config: "SpeculationConfig",
    seed: int,
) -> "RealRun":  # fmt: skip
    """Load a pair, decode prompts and integrate verification.

    Raises:
      RheocheckError: What loading or decoding refuses.
    """
    from rheocheck.bounds.real import decode_and_integrate
    from rheocheck.config import SamplingConfig

    pair, texts = load(run, model, target, draft, prompts, num_prompts, device)
    positive("rounds", rounds)
    run.options.update({"rounds": rounds, "temperature": temperature})
    sampling = SamplingConfig(
        temperature=temperature, max_new_tokens=rounds * (config.depth + 1), seed=seed
    )
    with run.bars() as progress:
        told = None if progress is None else labelled(progress, "prompts decoded")
        return decode_and_integrate(
            pair, texts, config, sampling, rounds, config.support_size, progress=told
        )


def load(
    run: Run, model: str | None, target: Path | None, draft: Path | None, prompts: Path | None,
    num_prompts: int, device: str,
) -> tuple["Pair", list[list[int]]]:  # fmt: skip
    """A pair and the tokens of its prompts; its options join the run's replay line.

    Raises:
      InputError: Torch is not installed, or no such prompts.
      RheocheckError: What loading refuses.
    """
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "--model runs models with torch, which is not installed; install it with "
            "pip install 'rheocheck[torch]' (given and random laws need no torch)"
        )
    from rheocheck.audit.prompts import read_prompts
    from rheocheck.models.registry import load_pair

    texts = read_prompts(prompts, positive("num_prompts", num_prompts))
    pair = load_pair(model or "tiny", target=target, draft=draft, device=device)
    run.model = pair.paths.name
    run.options.update({
        "model": model or "tiny", "target": target, "draft": draft, "prompts": prompts,
        "num-prompts": num_prompts, "device": device,
    })  # fmt: skip
    return pair, [pair.tokenizer.encode(prompt.text) for prompt in texts]


def labelled(progress: Any, label: str) -> Callable[[int, int], None]:
    """A progress callback for one kind of work."""
    return lambda done, total: progress(label, done, total)


def plain(value: Any) -> Any:
    """A value as JSON takes it."""
    return str(value) if isinstance(value, Path) else value
