"""Evidence carried from run to run: e-values of independent runs multiply.

Hypothesis of every run: the scheme under these settings emits the target's law. Each run gives the
e-value of each of its score tests at its end; under the hypothesis their product has expectation at
most 1 however many runs there are and whenever one stops, so 1/product is a p-value. Runs must be
independent, which distinct seeds are: a seed that was counted once is refused. A carry of other
settings speaks of another hypothesis and is refused too. The claim names checkpoints by their
registry name or folder; who changes the weights in a folder starts a new carry.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rheocheck.audit.digests import sha256_of
from rheocheck.audit.findings import StageFindings
from rheocheck.audit.settings import AuditSettings
from rheocheck.errors import InputError
from rheocheck.text import exactly

SCHEMA_VERSION = 1
# Scores whose e-values are carried, by name and by their key in the sampled stage's rows.
CARRIED_SCORES = (("surprisal", "surprisal"), ("draft score", "draft_score"))
CLAIM_FIELDS = ("model", "target", "draft", "temperatures", "config", "max_new_tokens", "device")


@dataclass(frozen=True, slots=True)
class Carry:
    """Evidence so far.

    Attributes:
      claim: JSON values: the settings that the hypothesis speaks of.
      runs: One entry a run: its digest, seed and ln e-value by statistic.
    """

    claim: dict[str, Any]
    runs: tuple[dict[str, Any], ...] = ()

    @property
    def log_e(self) -> dict[str, float]:
        """Ln of the product over runs, by statistic."""
        totals: dict[str, float] = {}
        for run in self.runs:
            for name, value in run["log_e"].items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def with_run(self, seed: int, log_e: Mapping[str, float]) -> "Carry":
        """The carry with one more run.

        Raises:
          InputError: A run of that seed is already counted; an e-value that is not finite; other
            statistics than the runs before.
        """
        self.check_seed(seed)
        if self.runs and set(log_e) != set(self.runs[0]["log_e"]):
            raise InputError(
                f"the run has statistics {sorted(log_e)}; the carry has "
                f"{sorted(self.runs[0]['log_e'])}"
            )
        for name, value in log_e.items():
            if not math.isfinite(value):
                raise InputError(f"ln e-value of {name} = {value}: a finite one required")
        run = {"digest": run_digest(self.claim, seed), "seed": seed, "log_e": dict(log_e)}
        return replace(self, runs=(*self.runs, run))

    def check_seed(self, seed: int) -> None:
        """Refuse a run that is already counted.

        Raises:
          InputError: It is.
        """
        digest = run_digest(self.claim, seed)
        for number, run in enumerate(self.runs, start=1):
            if run["digest"] == digest:
                raise InputError(
                    f"the carry already counts this run (run {number} of {len(self.runs)}, seed "
                    f"{seed}): only independent runs multiply, so give another --seed"
                )


def claim_of(settings: AuditSettings, prompts: list[str]) -> dict[str, Any]:
    """What the evidence is about: settings and prompts, not the seed."""
    values = settings.as_json()
    return {
        **{name: values[name] for name in CLAIM_FIELDS},
        "prompts": sha256_of(prompts).hex(),
    }


def run_digest(claim: dict[str, Any], seed: int) -> str:
    """Identity of a run: SHA-256 of claim and seed, in hexadecimal."""
    return sha256_of({"claim": claim, "seed": seed}).hex()


def read_carry(path: Path, claim: dict[str, Any]) -> Carry:
    """The carry in a file; an empty one where there is no file.

    Raises:
      InputError: No carry, a damaged one, another version, or one of other settings; the message
        names the first setting that differs.
    """
    if not path.exists():
        return Carry(claim)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"carry {path}: cannot be read ({error})") from None
    if not isinstance(values, dict) or "schema_version" not in values:
        raise InputError(f"carry {path}: not a carry file")
    if values["schema_version"] != SCHEMA_VERSION:
        raise InputError(
            f"carry {path}: schema version {values['schema_version']}, {SCHEMA_VERSION} required"
        )
    checksum = values.pop("checksum", None)
    if checksum != sha256_of(values).hex():
        raise InputError(f"carry {path}: damaged or edited (its checksum is not that of its text)")
    found, runs = values.get("claim"), values.get("runs")
    if not isinstance(found, dict) or not isinstance(runs, list) or not all(map(_is_run, runs)):
        raise InputError(f"carry {path}: not a carry file")
    for name in sorted(set(claim) | set(found)):
        if claim.get(name) != found.get(name):
            raise InputError(
                f"carry {path}: made with {name} = {found.get(name)!r}, this run has "
                f"{claim.get(name)!r}; evidence about other settings does not multiply"
            )
    carry = Carry(claim)
    for run in runs:
        # Adding them one by one refuses a run that stands in the file twice.
        carry = carry.with_run(run["seed"], run["log_e"])
    return carry


def write_carry(path: Path, carry: Carry) -> None:
    """Write a carry: whole or not at all."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "claim": carry.claim,
        "runs": list(carry.runs),
        "log_e": carry.log_e,
    }
    values["checksum"] = sha256_of(values).hex()
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def carried(sampled: StageFindings, carry: Carry, seed: int) -> tuple[StageFindings, Carry]:
    """Add a run's e-values to the carry and the products' p-values to the stage.

    Args:
      sampled: The sampled stage before the run's correction.
      carry: Evidence of earlier runs.
      seed: Of this run.

    Returns:
      The stage with one more p-value a statistic, min(1, 1/product), this run included; and the
      carry with this run.
    """
    log_e = {
        f"{name} T={exactly(row['temperature'])}": float(row[f"{key}_log_e"])
        for row in sampled.result.details["per_temperature"]
        for name, key in CARRIED_SCORES
    }
    after = carry.with_run(seed, log_e)
    p_values = {
        f"carried {name}": math.exp(-max(0.0, value)) for name, value in after.log_e.items()
    }
    details = {
        **sampled.result.details,
        "carry": {"runs": len(after.runs), "log_e": after.log_e},
    }
    result = sampled.result.model_copy(update={"details": details})
    return replace(sampled, result=result, p_values={**sampled.p_values, **p_values}), after


def _is_run(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("seed"), int)
        and isinstance(value.get("log_e"), dict)
        and all(isinstance(part, float) for part in value["log_e"].values())
    )
