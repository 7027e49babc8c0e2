"""`rheocheck certify --sampler module:function`: is any sampler lossless, exactly?"""

import shlex
import time
from fractions import Fraction
from pathlib import Path

from rheocheck.certificate import Report, Verdict, environment
from rheocheck.errors import InputError
from rheocheck.parallel import num_processes
from rheocheck.text import as_fraction


def certify_sampler(
    spec: str,
    *,
    quick: bool = False,
    seed: int = 0,
    max_vocab: int = 4,
    max_paths: int = 50_000,
    max_seconds: float = 300.0,
    tolerance: str | None = None,
    jobs: int = 1,
    resume: Path | None = None,
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
      jobs: Processes.
      resume: Journal to keep, and to go on with.
      json_file: Where to write the report.

    Returns:
      The report.

    Raises:
      InputError: The sampler cannot be imported, an argument is out of range.
      ProgramError: The sampler misbehaved; the message gives the choices that led there.
    """
    from rich.console import Console

    from rheocheck.audit.sampler_report import replay_of
    from rheocheck.audit.sampler_run import Limits
    from rheocheck.audit.sampler_source import SamplerSource
    from rheocheck.audit.sampler_stage import sampler_stage
    from rheocheck.cli.console import progress_bars
    from rheocheck.cli.resuming import resuming

    started = time.perf_counter()
    allowed = None if tolerance is None else _as_fraction(tolerance)
    source = SamplerSource(spec, str(Path.cwd()))
    sampler = source.load()
    run = {
        "command": "certify", "sampler": spec, "sampler_code": source.code_digest(), "seed": seed,
        "quick": quick, "max_vocab": max_vocab,
        "tolerance": str(getattr(sampler, "tolerance", 0) if allowed is None else allowed),
    }  # fmt: skip
    limits = Limits(
        max_paths=max_paths,
        max_seconds=max_seconds,
        max_run_seconds=min(Limits().max_run_seconds, max_seconds),
    )
    replay = replay_of(spec, quick, seed, max_vocab, limits, allowed)
    words = [*shlex.split(replay), "--jobs", str(jobs)]
    words += [] if json_file is None else ["--json", str(json_file)]
    num_processes(jobs)
    with resuming(run, resume, words) as journal, progress_bars(Console(stderr=True)) as progress:
        stage = sampler_stage(
            source,
            spec,
            quick=quick,
            seed=seed,
            max_vocab=max_vocab,
            limits=limits,
            tolerance=allowed,
            jobs=jobs,
            journal=journal,
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
        return as_fraction(text)
    except ValueError:
        raise InputError(
            f"--tolerance is {text!r}; required: a fraction or a decimal, such as 1/1000 or 1e-12"
        ) from None
