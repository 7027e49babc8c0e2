"""Controls of the sampler stage: samplers whose exact figures are known, judged as yours is."""

from fractions import Fraction
from typing import Any

from rheocheck.audit.controls import Control
from rheocheck.audit.sampler_check import examine
from rheocheck.audit.sampler_family import EDGE_GROUP, LawTable, SamplerInstance
from rheocheck.audit.sampler_run import Limits
from rheocheck.protocols import Choose, LawFunction, Path

_FAIR = LawTable({(): (Fraction(1, 2), Fraction(1, 2))})
_SURE = LawTable({(): (Fraction(1), Fraction(0))})


def sampler_controls() -> list[Control]:
    """Judge a right sampler, two lossy ones and one that repeats itself only by chance.

    Returns:
      The controls; milliseconds in all.
    """
    return [
        _control("target sampling", _plain, "total variation 0"),
        _control("a residual that is the target", _residual_is_the_target, "total variation 1/4"),
        _control("one coin for two tokens", _one_coin_for_two_tokens, "total variation 1/2"),
        _control("state carried from call to call", _Counting(), "refused"),
    ]


def _control(name: str, sampler: Any, expected: str) -> Control:
    instance = SamplerInstance(EDGE_GROUP, _FAIR, _SURE)
    found = examine(sampler, instance, Limits(), float("inf"), Fraction(0))
    said = f"total variation {found.total_variation}"
    if found.error is not None:
        said = "refused"
    elif not found.complete or (found.failing is None) != (found.total_variation == 0):
        said = f"{said}, but no violation"
    return Control(name, expected, said)


def _plain(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    return (choose.categorical(target(())),)


def _residual_is_the_target(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    token = choose.categorical(draft(()))
    if choose.bernoulli(min(Fraction(1), target(())[token] / draft(())[token])):
        return (token,)
    return (choose.categorical(target(())),)


def _one_coin_for_two_tokens(target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
    token = choose.categorical(target(()))
    return (token, token)


class _Counting:
    """Gives another law from its third call on: the second enumeration is not the first one."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        self._calls += 1
        token = choose.categorical(target(()))
        return (token,) if self._calls > 2 else (0,)
