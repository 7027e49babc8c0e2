"""Certificates of instances: small, made again by the other enumerator, rejected when changed."""

import base64
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from rheocheck.audit import certificate_check, exact
from rheocheck.audit.certificate_check import check_certificate, derive
from rheocheck.audit.certify_report import certify_report
from rheocheck.audit.digests import digests_of, sha256_of
from rheocheck.audit.exact import exact_stage
from rheocheck.audit.exact_check import law_of_instance
from rheocheck.audit.file_seal import SEAL, seal_of
from rheocheck.audit.instance_certificate import KEY, CertificateFile, InstanceCertificate
from rheocheck.certificate import Verdict
from rheocheck.errors import InputError
from rheocheck.reference.families import Instance, family
from tests.defects.reference_faults import FAULTS

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def _small_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """One instance in nine of the quick family."""
    for module in (exact, certificate_check):
        monkeypatch.setattr(module, "family", lambda quick, seed: some(seed))


def some(seed: int = 0) -> list[Instance]:
    return family(quick=True, seed=seed)[::9]


@functools.cache
def certificate_text(max_eager_paths: int) -> str:
    """The certificate of the small family, made once."""
    return made_now(max_eager_paths)


def made_now(max_eager_paths: int = 100) -> str:
    stage = exact_stage(True, 0, 1, max_eager_paths=max_eager_paths)
    return certify_report([stage], quick=True, seed=0).model_dump_json()


def certified(folder: Path, max_eager_paths: int = 100) -> Path:
    """A certificate file, as the command writes it."""
    path = folder / "certificate.json"
    path.write_text(certificate_text(max_eager_paths), encoding="utf-8")
    return path


def changed(path: Path, change: Change, sealed: bool = False) -> CertificateFile:
    """The file read back after a change; `sealed` forges both seals."""
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    file = CertificateFile.read(path)
    if sealed:
        certificate_in(value)["sha256"] = file.certificate.seal(file.stage)
        value["facts"][SEAL] = seal_of(value)
        path.write_text(json.dumps(value), encoding="utf-8")
        file = CertificateFile.read(path)
        assert file.sealed
    return file


def certificate_in(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["stages"][0]["details"][KEY]
    return found


def test_a_certificate_is_made_again_by_the_other_enumerator(tmp_path: Path) -> None:
    file = CertificateFile.read(certified(tmp_path))
    result = check_certificate(file)
    assert result.verdict is Verdict.CERTIFIED
    assert result.sample_size == len(some())
    details = result.details
    other, same = details["num_by_other_enumerator"], details["num_by_same_enumerator"]
    assert other > same > 0
    assert other + same == len(some())
    assert sum(details["not_by_other_enumerator"].values()) == same
    assert "have too many paths" in details["summary"]
    assert result.claim == file.stage.claim


def test_jobs_do_not_change_the_outcome(tmp_path: Path) -> None:
    file = CertificateFile.read(certified(tmp_path))
    # Worker processes do not see the small family: the tasks that they get are the instances.
    one, two = (check_certificate(file, jobs=jobs) for jobs in (1, 2))
    assert one.model_dump(exclude={"seconds"}) == two.model_dump(exclude={"seconds"})


def test_a_larger_bound_leaves_less_to_the_same_enumerator(tmp_path: Path) -> None:
    file = CertificateFile.read(certified(tmp_path, max_eager_paths=10))
    few = check_certificate(file).details["num_by_other_enumerator"]
    assert check_certificate(file, max_eager_paths=300).details["num_by_other_enumerator"] > few


@pytest.mark.parametrize("number", [0, 17, 100])
@pytest.mark.parametrize(("place", "what"), [(3, "scheme and laws"), (11, "digest of its law")])
def test_a_changed_digest_is_found_at_its_instance(
    number: int, place: int, what: str, tmp_path: Path
) -> None:
    """Even if the SHA-256 of the whole was forged with it."""

    def change(value: dict[str, Any]) -> None:
        left = number
        for group in certificate_in(value)["groups"]:
            if left < group["num_instances"]:
                at = 16 * left + place
                old = group["digests"][at]
                group["digests"] = (
                    group["digests"][:at]
                    + ("A" if old != "A" else "B")
                    + group["digests"][at + 1 :]
                )
                return
            left -= group["num_instances"]

    result = check_certificate(changed(certified(tmp_path), change, sealed=True))
    assert result.verdict is Verdict.LOSSY
    assert result.claim is None
    (problem,) = result.details["problems"]
    names: dict[str, list[str]] = {}
    for instance in some():
        names.setdefault(instance.group, []).append(instance.name)
    assert problem["instance"] == [name for group in names.values() for name in group][number]
    assert what in problem["what"]


def _drop_instance(value: dict[str, Any]) -> None:
    group = certificate_in(value)["groups"][0]
    group["digests"] = group["digests"][16:]
    group["num_instances"] -= 1


def _drop_group(value: dict[str, Any]) -> None:
    certificate_in(value)["groups"].pop()


def _other_laws_digest(value: dict[str, Any]) -> None:
    certificate_in(value)["groups"][1]["laws_sha256"] = "0" * 64


def _other_seed(value: dict[str, Any]) -> None:
    certificate_in(value)["seed"] = 1


def _lossy_report(value: dict[str, Any]) -> None:
    value["verdict"] = "lossy"


def _lossy_stage(value: dict[str, Any]) -> None:
    value["stages"][0]["verdict"] = value["verdict"] = "lossy"


def _larger_claim(value: dict[str, Any]) -> None:
    value["claims"] = ["everything is lossless"]


def _larger_count(value: dict[str, Any]) -> None:
    value["stages"][0]["sample_size"] = 10**6


def _one_lossy(value: dict[str, Any]) -> None:
    certificate_in(value)["exceptions"]["5"] = "lossy"
    value["stages"][0]["verdict"] = value["verdict"] = "lossy"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_drop_instance, "groups and their sizes"),
        (_drop_group, "groups and their sizes"),
        (_other_laws_digest, "SHA-256 of group"),
        (_other_seed, "scheme and laws"),
        (_lossy_report, "the report says lossy"),
        (_lossy_stage, "the verdict of the exact stage is lossy, the rest says certified"),
        (_larger_claim, "claims"),
        (_larger_count, "the number of instances of the exact stage is 1000000"),
        (_one_lossy, "verdict is lossy in the file and certified"),
    ],
)
def test_any_change_is_found_even_with_a_forged_seal(
    change: Change, what: str, tmp_path: Path
) -> None:
    result = check_certificate(changed(certified(tmp_path), change, sealed=True))
    assert result.verdict is Verdict.LOSSY
    assert any(what in problem["what"] for problem in result.details["problems"])


@pytest.mark.parametrize("name", ["git_revision", "rheocheck"])
def test_what_cannot_be_computed_again_is_sealed(name: str, tmp_path: Path) -> None:
    def change(value: dict[str, Any]) -> None:
        certificate_in(value)["versions"][name] = "another"

    result = check_certificate(changed(certified(tmp_path), change))
    assert result.verdict is Verdict.LOSSY
    assert [problem["what"] for problem in result.details["problems"]] == [
        "the seal of the whole file is missing or another",
        "the file's own SHA-256 is another",
        "the report's versions are not the certificate's",
    ]


def test_a_law_of_a_faulty_enumerator_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate was made by right code; the other enumerator now has a fault."""
    file = CertificateFile.read(certified(tmp_path))
    FAULTS["residual_is_the_target"](monkeypatch)
    result = check_certificate(file)
    assert result.verdict is Verdict.LOSSY
    assert result.details["num_problems"] > 0


def test_a_lossy_certificate_stays_lossy_when_it_is_genuine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both enumerators have the same fault: the first token is always 0."""

    def lossy(instance: Instance, *arguments: Any) -> Any:
        law = law_of_instance(instance, *arguments)
        return replace(law, emissions={(0,): sum(law.emissions.values(), Fraction(0))})

    monkeypatch.setattr("rheocheck.audit.exact_check.law_of_instance", lossy)
    monkeypatch.setattr(certificate_check, "law_of_instance", lossy)
    path = tmp_path / "lossy.json"
    path.write_text(made_now(), encoding="utf-8")
    file = CertificateFile.read(path)
    assert file.stage.verdict is Verdict.LOSSY
    result = check_certificate(file)
    assert result.verdict is Verdict.LOSSY
    assert result.details["num_problems"] == 0
    assert "the file is genuine" in result.details["summary"]


def test_a_sample_is_drawn_by_its_seed(tmp_path: Path) -> None:
    file = CertificateFile.read(certified(tmp_path))
    result = check_certificate(file, sample=20, seed=1)
    assert result.sample_size == 20
    assert "were not drawn" in result.details["summary"]
    again = check_certificate(file, sample=20, seed=1)
    assert result.model_dump(exclude={"seconds"}) == again.model_dump(exclude={"seconds"})


@pytest.mark.parametrize("options", [{"jobs": 0}, {"sample": -1}, {"max_eager_paths": -1}])
def test_options_out_of_range_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    file = CertificateFile.read(certified(tmp_path))
    with pytest.raises(InputError, match="required: at least"):
        check_certificate(file, **options)


def _malform(name: str, value: Any) -> Change:
    def change(whole: dict[str, Any]) -> None:
        certificate_in(whole)[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_malform("format", "rheocheck-instances/9"), "format"),
        (_malform("seed", -1), "seed"),
        (_malform("seed", "0"), "seed"),
        (_malform("sha256", "abc"), "sha256"),
        (_malform("exceptions", {"99999999": "lossy"}), "no instance '99999999'"),
        (_malform("exceptions", {"-1": "lossy"}), "no instance '-1'"),
        (_malform("surplus", 1), "surplus"),
        (lambda whole: whole.pop("stages"), "stages"),
        (lambda whole: whole["stages"][0]["details"].pop(KEY), "holds no instance certificate"),
        (lambda whole: certificate_in(whole)["groups"][0].update(digests="AAAA"), "16 each"),
        (lambda whole: certificate_in(whole)["groups"][0].update(digests="*" * 16), "digests"),
    ],
)
def test_malformed_files_are_input_errors(change: Change, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=text):
        changed(certified(tmp_path), change)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"a": 1}'])
def test_files_that_are_no_report_are_input_errors(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="malformed"):
        CertificateFile.read(path)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        CertificateFile.read(tmp_path / "none.json")


def test_digests_are_of_canonical_json() -> None:
    by_hand = hashlib.sha256(b'{"a":["1/2"],"b":1}').digest()
    assert sha256_of({"b": 1, "a": ["1/2"]}) == by_hand


def test_digests_do_not_depend_on_the_enumerator_and_follow_every_part() -> None:
    instance = next(i for i in some() if i.config.depth == 2 and i.config.rule == "rheo")
    target, draft = instance.models()
    law, eager = (
        law_of_instance(instance, target, draft, method, None) for method in ("classes", "eager")
    )
    digests = digests_of(instance, target, draft, law)
    assert digests == digests_of(instance, target, draft, eager)
    assert len(base64.urlsafe_b64decode(digests.short())) == 12
    scheme = replace(instance, config=instance.config.model_copy(update={"rule": "onehot"}))
    assert digests_of(scheme, target, draft, law).instance != digests.instance
    assert digests_of(scheme, target, draft, law).law == digests.law
    longer = replace(law, expected_accepted=law.expected_accepted + 1)
    assert digests_of(instance, target, draft, longer).law != digests.law
    assert digests_of(instance, target, draft, longer).instance == digests.instance


def test_an_instance_beyond_the_bound_is_made_by_classes() -> None:
    instance = max(some(), key=lambda i: (i.config.budget, i.config.depth, i.vocab))
    assert derive(3, instance, 0).method == "classes"
    assert derive(3, instance, 0).index == 3


def test_the_certificate_of_the_default_family_is_small() -> None:
    """Sixteen characters an instance: 19,800 instances make some 320 KB."""
    stage = exact_stage(True, 0, 1, max_eager_paths=0)
    certificate = InstanceCertificate.model_validate(stage.details[KEY])
    size = len(certificate.model_dump_json())
    overhead = size - 16 * certificate.num_instances
    assert overhead < 10_000
    assert 16 * len(family()) + overhead < 400_000
