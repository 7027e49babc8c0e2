"""`rheocheck certify --sampler module:function`: is any sampler lossless, exactly?"""

import importlib
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from rheocheck.certificate import Report, Verdict, environment
from rheocheck.errors import InputError, RheocheckError
from rheocheck.protocols import Sampler


def load_sampler(spec: str) -> Sampler:
    """Import a sampler by its name.

    The current directory is put first on the module path, as pytest's rootdir is; nothing is
    evaluated, `spec` is only imported.

    Args:
      spec: "package.module:name", name perhaps dotted (a class attribute).

    Returns:
      The object of that name.

    Raises:
      InputError: No colon, no such module or name, an import that raised, or not callable.
    """
    module_name, colon, name = spec.partition(":")
    parts = [*module_name.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise InputError(f"--sampler is {spec!r}; required: package.module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except RheocheckError:
        raise
    except Exception as error:
        raise InputError(
            f"--sampler {spec}: importing {module_name} raised {type(error).__name__}: {error}; "
            f"required: a module that can be imported from {here} or from the installed packages"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"--sampler {spec}: {module_name} has no {name}; required: the name of a sampler"
            )
        found = getattr(found, part)
    if not callable(found):
        raise InputError(
            f"--sampler {spec} is of type {type(found).__name__}; required: a callable "
            f"sampler(target, draft, choose) -> tuple of tokens"
        )
    return cast(Sampler, found)


def certify_sampler(
    spec: str,
    *,
    quick: bool = False,
    seed: int = 0,
    max_vocab: int = 4,
    max_paths: int = 50_000,
    max_seconds: float = 300.0,
    tolerance: str | None = None,
    json_file: Path | None = None,
) -> Report:
    """Check the sampler that `spec` names, print what was found, write it if asked to.

    Args:
      spec: "package.module:function".
      quick: Check about a third of the family.
      seed: Changes the laws that look at the last tokens.
      max_vocab: Largest vocabulary, 2 to 4.
      max_paths: Most runs of the sampler on one instance.
      max_seconds: Seconds of the whole sweep.
      tolerance: Largest total variation that counts as rounding, as a fraction or a decimal; None
        takes the sampler's own attribute, 0 if it has none.
      json_file: Where to write the report.

    Returns:
      The report.

    Raises:
      InputError: The sampler cannot be imported, an argument is out of range.
      ProgramError: The sampler misbehaved; the message gives the choices that led there.
    """
    from rich.console import Console

    from rheocheck.audit.sampler_check import sampler_stage
    from rheocheck.audit.sampler_run import Limits
    from rheocheck.cli.console import progress_bars

    started = time.perf_counter()
    allowed = None if tolerance is None else _as_fraction(tolerance)
    sampler = load_sampler(spec)
    with progress_bars(Console(stderr=True)) as progress:
        stage = sampler_stage(
            sampler,
            spec,
            quick=quick,
            seed=seed,
            max_vocab=max_vocab,
            limits=Limits(max_paths=max_paths, max_seconds=max_seconds),
            tolerance=allowed,
            progress=progress,
        )
    report = Report(
        command="certify",
        verdict=stage.verdict,
        claims=[stage.claim] if stage.claim else [],
        settings={
            "sampler": spec,
            "quick": quick,
            "seed": seed,
            "max_vocab": max_vocab,
            "max_paths": max_paths,
            "max_seconds": max_seconds,
            "tolerance": stage.details["tolerance"],
        },
        stages=[stage],
        environment=environment(),
        seconds=time.perf_counter() - started,
    )
    _print(report)
    if json_file is not None:
        report.write_json(json_file)
    return report


def sampler_lines(report: Report) -> list[str]:
    """What a person reads of a sampler's report, without the verdict.

    Returns:
      Lines without markup.
    """
    from rheocheck.audit.counterexample import counterexample_lines
    from rheocheck.audit.sampler_family import law_text, path_text

    stage = report.stages[0]
    details = stage.details
    rounds = details["num_rounds"]
    lines = [f"sampler {details['sampler']}, {rounds} round{'s' if rounds > 1 else ''} jointly"]
    for row in details["covered"]:
        lines.append(
            f"  {row['checked']:>3} of {row['in_all']:>3} instances: {row['group']}, "
            f"{row['vocab']} tokens"
        )
    lines.append(details["summary"])
    for found in details["endpoint_findings"][:1]:
        if "error" in found:
            lines.append(f"Finding: {found['finding']}: {found['error']}")
            continue
        lines.append(
            f"Finding: {found['finding']}: token {found['token']} after "
            f"{path_text(found['path'])}, where the target is {law_text(found['target'])}, with "
            f"probability {found['probability']}"
        )
    if "counterexample" in details:
        lines += counterexample_lines(details["counterexample"])
    elif stage.verdict is Verdict.LOSSY:
        shown = ", ".join(f"{key} {value}" for key, value in details["witness"].items())
        lines.append(f"Witness: {shown}")
    lines += [f"Claim: {claim}" for claim in report.claims]
    return lines


def _print(report: Report) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for line in sampler_lines(report):
        console.print(line, markup=False, soft_wrap=True)
    colour = {Verdict.CERTIFIED: "green", Verdict.LOSSY: "red"}.get(report.verdict, "yellow")
    console.print(
        f"Verdict: [bold {colour}]{report.verdict.name}[/] in {report.seconds or 0:.1f} s",
        soft_wrap=True,
    )
    console.print(f"Replay: {report.stages[0].replay}", markup=False, soft_wrap=True)


def _as_fraction(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(
            f"--tolerance is {text!r}; required: a fraction or a decimal, such as 1/1000 or 1e-12"
        ) from None
