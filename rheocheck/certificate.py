"""Schema of what the commands conclude: one verdict, a list of stages, the facts behind them.

The JSON files of `--json`, the tables on the terminal and the HTML page are all made from `Report`.
"""

import platform
import subprocess
import sys
from collections.abc import Iterable
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """What a stage, or a run, concluded.

    CERTIFIED: the claim is proved or bounded. NO_EVIDENCE: a test of stated power found nothing.
    SUSPECT: adjusted p in (1e-6, 1e-3]. LOSSY: adjusted p <= 1e-6 or an exact counterexample.
    INCONCLUSIVE: the stage could not decide. Suspect and inconclusive never pass.
    """

    CERTIFIED = "certified"
    NO_EVIDENCE = "no_evidence"
    SUSPECT = "suspect"
    LOSSY = "lossy"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES: dict[Verdict, int] = {
    Verdict.CERTIFIED: 0,
    Verdict.NO_EVIDENCE: 0,
    Verdict.LOSSY: 1,
    Verdict.SUSPECT: 3,
    Verdict.INCONCLUSIVE: 3,
}
INPUT_ERROR_EXIT_CODE = 2


class StageResult(BaseModel):
    """What one stage found. Fields that do not apply are null.

    Attributes:
      name: Stage name, as on the command line.
      verdict: The stage's own verdict.
      claim: The sentence that a `certified` verdict proves; null if the stage can certify nothing.
      statistic: The number the verdict rests on; `details` says what it is and its exact form.
      p_value: Unadjusted p-value of the stage, for Holm's correction over stages.
      sample_size: Units examined (instances, rounds, prompts, probes, tokens).
      threshold: The value of `statistic` at which the verdict changes.
      power: Probability of detecting the alternative that `details` names.
      replay: One shell line that reproduces the stage.
      seconds: Wall time of the stage.
      details: Everything else, JSON values only.
    """

    model_config = ConfigDict(extra="forbid", use_enum_values=False)

    name: str
    verdict: Verdict
    claim: str | None = None
    statistic: float | None = None
    p_value: float | None = None
    sample_size: int | None = None
    threshold: float | None = None
    power: float | None = None
    replay: str | None = None
    seconds: float | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class Report(BaseModel):
    """One run of a command: its verdict, its stages and where it was made.

    `localisation` says where in decoding a fault sits; null where nothing was found or looked for.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    command: str
    verdict: Verdict
    claims: list[str] = Field(default_factory=list)
    settings: dict[str, Any] = Field(default_factory=dict)
    stages: list[StageResult]
    facts: dict[str, Any] = Field(default_factory=dict)
    localisation: dict[str, Any] | None = None
    environment: dict[str, str] = Field(default_factory=dict)
    seconds: float | None = None

    def write_json(self, path: Path) -> None:
        """Write the report to `path` as indented JSON without NaN or infinity.

        Bytes of a path that are no UTF-8 are shown by their codes.
        """
        try:
            text = self.model_dump_json(indent=2)
        except PydanticSerializationError:
            shown = type(self).model_validate(_encodable(self.model_dump()))
            text = shown.model_dump_json(indent=2)
        path.write_text(text + "\n", encoding="utf-8")


def _encodable(value: Any) -> Any:
    """The value with lone surrogates, which UTF-8 cannot write, shown by their codes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def overall_verdict(stages: Iterable[StageResult], required: Iterable[str]) -> Verdict:
    """Combine the verdicts of stages into that of the run.

    Args:
      stages: Results of the stages that ran.
      required: Names of the stages without which nothing is certified.

    Returns:
      LOSSY if any stage is; else INCONCLUSIVE if a required stage is, or did not run; else SUSPECT
      if any stage is; else CERTIFIED if every required stage is; else NO_EVIDENCE. A stage that
      merely found nothing does not demote a certificate unless it is required.
    """
    results = list(stages)
    by_name = {stage.name: stage.verdict for stage in results}
    verdicts = [stage.verdict for stage in results]
    needed = [by_name.get(name, Verdict.INCONCLUSIVE) for name in required]
    if Verdict.LOSSY in verdicts:
        return Verdict.LOSSY
    if Verdict.INCONCLUSIVE in needed:
        return Verdict.INCONCLUSIVE
    if Verdict.SUSPECT in verdicts:
        return Verdict.SUSPECT
    if needed and all(verdict is Verdict.CERTIFIED for verdict in needed):
        return Verdict.CERTIFIED
    return Verdict.NO_EVIDENCE


def environment() -> dict[str, str]:
    """Versions that a reader needs to reproduce a run; a package that is absent is left out."""
    found = {"python": platform.python_version(), "platform": sys.platform}
    for package in ("rheocheck", "numpy", "scipy", "torch", "transformers", "safetensors"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    revision = _git_revision()
    if revision is not None:
        found["git_revision"] = revision
    return found


def _git_revision() -> str | None:
    """Commit of the source tree this package runs from, or None for an installed wheel."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "pyproject.toml").exists() or not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
