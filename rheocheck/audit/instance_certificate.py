"""The certificate of the exact stage, instance by instance: small, and checkable by re-derivation.

Instances are not stored: they are made again from the family's seed. For each there are two
digests, of what was asked and of the law that came out, cut to 48 bits to keep the file small; a
group adds the SHA-256 of all its full digests. So a changed digest, law or verdict is found by
computing the instance again (`certificate_check`), and a changed anything by the SHA-256 of the
whole.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rheocheck.audit.digests import SHORT_LENGTH, Digests, sha256_of
from rheocheck.audit.file_seal import is_sealed
from rheocheck.certificate import SCHEMA_VERSION, Report, StageResult, Verdict, environment
from rheocheck.errors import InputError

FORMAT: Literal["rheocheck-instances/1"] = "rheocheck-instances/1"
KEY = "certificate"
PAIR_LENGTH = 2 * SHORT_LENGTH
_LARGEST_FILE = 2**26
_SHA256 = r"^[0-9a-f]{64}$"


class GroupDigests(BaseModel):
    """Digests of one group of instances, in the family's order.

    Attributes:
      name: The group.
      num_instances: Instances in it.
      digests: 16 characters an instance, one after the other: see `Digests.short`.
      instances_sha256: Of all full instance digests, joined.
      laws_sha256: Of all full law digests, joined.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    num_instances: int = Field(ge=1)
    digests: str = Field(pattern=r"^[A-Za-z0-9_-]*$")
    instances_sha256: str = Field(pattern=_SHA256)
    laws_sha256: str = Field(pattern=_SHA256)

    def pairs(self) -> Iterator[str]:
        """The 16 characters of each instance."""
        for start in range(0, len(self.digests), PAIR_LENGTH):
            yield self.digests[start : start + PAIR_LENGTH]


class InstanceCertificate(BaseModel):
    """What the exact stage found on every instance of a family.

    Attributes:
      format: Name and version of this schema.
      enumerator: Which enumerator made the laws.
      quick: Whether the family is the quick one.
      seed: The family's seed.
      max_eager_paths: Bound within which the other enumerator ran too.
      versions: Of python, rheocheck and its packages, and the git revision where there is one.
      groups: Digests by group.
      exceptions: Verdict of each instance that was not certified, by its index in the family.
      sha256: Of everything above and the stage's own verdict, claim and counts.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["rheocheck-instances/1"]
    enumerator: Literal["classes"]
    quick: bool
    seed: int = Field(ge=0)
    max_eager_paths: int = Field(ge=0)
    versions: dict[str, str]
    groups: list[GroupDigests]
    exceptions: dict[str, Literal["lossy", "inconclusive"]]
    sha256: str = Field(pattern=_SHA256)

    @property
    def num_instances(self) -> int:
        """Instances of all groups."""
        return sum(group.num_instances for group in self.groups)

    def seal(self, stage: StageResult) -> str:
        """SHA-256 of the certificate and of what the stage says about it, in hexadecimal."""
        facts = stage.model_dump(mode="json", include=set(_SEALED))
        return sha256_of([self.model_dump(mode="json", exclude={"sha256"}), facts]).hex()


_SEALED = ("name", "verdict", "claim", "statistic", "sample_size")


class CertificateBuilder:
    """Collects digests in the family's order."""

    def __init__(self) -> None:
        """Nothing is collected yet."""
        self._groups: dict[str, tuple[list[str], Any, Any]] = {}
        self._exceptions: dict[str, Literal["lossy", "inconclusive"]] = {}
        self._num_instances = 0

    def add(self, group: str, digests: Digests, verdict: Verdict) -> None:
        """Count one more instance.

        Args:
          group: Its group.
          digests: Its digests.
          verdict: CERTIFIED, or what keeps it from being so.
        """
        shorts, instances, laws = self._groups.setdefault(
            group, ([], hashlib.sha256(), hashlib.sha256())
        )
        shorts.append(digests.short())
        instances.update(digests.instance)
        laws.update(digests.law)
        if verdict is not Verdict.CERTIFIED:
            kind: Literal["lossy", "inconclusive"] = (
                "lossy" if verdict is Verdict.LOSSY else "inconclusive"
            )
            self._exceptions[str(self._num_instances)] = kind
        self._num_instances += 1

    def groups(self) -> list[GroupDigests]:
        """What was collected, by group."""
        return [
            GroupDigests(
                name=name,
                num_instances=len(shorts),
                digests="".join(shorts),
                instances_sha256=instances.hexdigest(),
                laws_sha256=laws.hexdigest(),
            )
            for name, (shorts, instances, laws) in self._groups.items()
        ]

    def attach(self, stage: StageResult, quick: bool, seed: int, max_eager_paths: int) -> None:
        """Put the sealed certificate into a stage's details.

        Args:
          stage: The finished exact stage.
          quick: As the stage was run.
          seed: As the stage was run.
          max_eager_paths: As the stage was run.
        """
        certificate = InstanceCertificate(
            format=FORMAT,
            enumerator="classes",
            quick=quick,
            seed=seed,
            max_eager_paths=max_eager_paths,
            versions=environment(),
            groups=self.groups(),
            exceptions=self._exceptions,
            sha256="0" * 64,
        )
        certificate.sha256 = certificate.seal(stage)
        stage.details[KEY] = certificate.model_dump(mode="json")


class CertificateFile(BaseModel):
    """A file that `certify --json` wrote, read back.

    Attributes:
      report: All of it.
      stage: The stage that has the certificate.
      certificate: The certificate.
      sealed: Whether the file as a whole has the seal that it was written with.
    """

    model_config = ConfigDict(extra="forbid")

    report: Report
    stage: StageResult
    certificate: InstanceCertificate
    sealed: bool

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and validate a file.

        Args:
          path: The file.

        Returns:
          Its parts.

        Raises:
          InputError: It cannot be read, is no JSON, no report, or has no instance certificate.
        """
        value = _read_json(path)
        try:
            report = Report.model_validate(value)
        except ValidationError as error:
            raise InputError(f"{path} is malformed: {_first(error)}") from None
        _check_kind(path, report)
        for stage in report.stages:
            if KEY in stage.details:
                try:
                    certificate = InstanceCertificate.model_validate(stage.details[KEY])
                except ValidationError as error:
                    raise InputError(f"{path} is malformed: certificate, {_first(error)}") from None
                _check_lengths(path, certificate)
                return cls(
                    report=report, stage=stage, certificate=certificate, sealed=is_sealed(value)
                )
        raise InputError(
            f"{path} holds no instance certificate; required: a file that `rheocheck certify "
            f"--json` wrote for the family of instances"
        )


def _check_kind(path: Path, report: Report) -> None:
    """Refuse reports of other commands, with what to do instead."""
    names = [stage.name for stage in report.stages]
    if report.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema version {report.schema_version}; required: {SCHEMA_VERSION}"
        )
    if report.command == "certify" and names != ["sampler"]:
        return
    kind = "certify --sampler" if report.command == "certify" else report.command
    replay = next((stage.replay for stage in report.stages if stage.replay), None)
    raise InputError(
        f"{path} holds no instance certificate: it is a report of `rheocheck {kind}`; required: a "
        f"file that `rheocheck certify --json` wrote for the project's own scheme"
        + (f". To check this one, run it again: {replay}" if replay else "")
    )


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path} has {path.stat().st_size} bytes; no certificate is so large")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is malformed: it is no JSON: {error}") from None


def _check_lengths(path: Path, certificate: InstanceCertificate) -> None:
    for group in certificate.groups:
        if len(group.digests) != PAIR_LENGTH * group.num_instances:
            raise InputError(
                f"{path} is malformed: group {group.name!r} has {len(group.digests)} characters of "
                f"digests for {group.num_instances} instances; required: {PAIR_LENGTH} each"
            )
    bad = [
        index
        for index in certificate.exceptions
        if not index.isascii() or not index.isdigit() or int(index) >= certificate.num_instances
    ]
    if bad:
        raise InputError(f"{path} is malformed: there is no instance {bad[0]!r} to except")


def _first(error: ValidationError) -> str:
    """The first complaint, in one line."""
    item = error.errors()[0]
    name = ".".join(str(piece) for piece in item["loc"]) or "file"
    message = item["msg"]
    return f"{name}: {message[0].lower()}{message[1:]}"
