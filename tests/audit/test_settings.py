"""Settings of an audit: what is refused, and a replay line that repeats the run."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheocheck.audit.prompts import read_prompts
from rheocheck.audit.settings import (
    DEEP_CERTIFIED_TV,
    WHITEBOX_ALPHA,
    AuditSettings,
    make_config,
)
from rheocheck.config import SpeculationConfig
from rheocheck.errors import ConfigError
from rheocheck.stats.betting import mean_upper_bound


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperatures": ()}, "at least one temperature"),
        ({"temperatures": (1.0, 0.0)}, r"temperature 0 \(number 2\) must be positive"),
        ({"temperatures": (float("nan"),)}, r"temperature nan \(number 1\) must be positive"),
        ({"temperatures": (1.0, 1.0)}, "given twice"),
        ({"num_prompts": 0}, "num_prompts = 0"),
        ({"detect": 0.0}, "detect = 0"),
        ({"detect": 9e-7}, "detect = 9e-07"),
        ({"detect": 1.0}, "detect = 1"),
        ({"detect": float("nan")}, "detect = nan"),
        ({"token_cap": 0}, "token_cap = 0"),
        ({"certify": 0.0}, "certify = 0"),
        ({"certify": 9e-7}, "certify = 9e-07"),
        ({"certify": 1.0}, "certify = 1"),
        ({"certify": float("nan")}, "certify = nan"),
        ({"jobs": 0}, "jobs = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0"),
    ],
)
def test_values_out_of_range_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AuditSettings(**values)


def test_the_replay_line_repeats_every_setting_that_results_depend_on() -> None:
    settings = AuditSettings(
        prompts=Path("my prompts.txt"),
        num_prompts=7,
        temperatures=(0.5,),
        config=make_config(top_k=4, num_top=2, budget=9, depth=3, support_size=16, rule="rrsw"),
        max_new_tokens=5,
        seed=3,
    )
    words = shlex.split(settings.replay())
    assert words[:2] == ["rheocheck", "audit"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options == {
        "--model": "tiny",
        "--prompts": "my prompts.txt",
        "--num-prompts": "7",
        "--certify": "0.01",
        "--temperature": "0.5",
        "--top-k": "4",
        "--num-top": "2",
        "--budget": "9",
        "--depth": "3",
        "--support-size": "16",
        "--rule": "rrsw",
        "--max-new-tokens": "5",
        "--seed": "3",
        "--device": "cpu",
    }


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, 500),
        ({"certify": 0.1}, 500),
        ({"certify": DEEP_CERTIFIED_TV}, 4696),
        ({"certify": 0.002}, 2348),
        ({"num_prompts": 3, "certify": 0.001}, 3),
    ],
)
def test_prompts_are_those_that_the_bound_needs_and_a_few_more(
    values: dict[str, Any], wanted: int
) -> None:
    settings = AuditSettings(**values)
    assert settings.wanted_prompts == wanted
    zeros = np.zeros(wanted)
    if settings.num_prompts is None:
        assert mean_upper_bound(zeros, WHITEBOX_ALPHA) <= settings.certify
    assert ("--num-prompts" in settings.replay()) == (settings.num_prompts is not None)


def test_the_committed_prompts_are_enough_for_a_deep_run() -> None:
    wanted = AuditSettings(certify=DEEP_CERTIFIED_TV).wanted_prompts
    assert len(read_prompts(None, wanted, all_of_them=True)) == wanted


@given(value=st.floats(1e-6, 0.999))
def test_the_replay_line_gives_back_every_digit(value: float) -> None:
    settings = AuditSettings(certify=value, detect=value, temperatures=(value,))
    words = shlex.split(settings.replay())
    for option in ("--certify", "--detect", "--temperature"):
        assert float(words[words.index(option) + 1]) == value


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="rule = 'best'"):
        make_config(top_k=4, num_top=2, budget=9, depth=3, support_size=16, rule="best")


@pytest.mark.parametrize(
    "options", [{"num_probes": 2}, {"merged": True}, {"top_thresholds": (0.5,)}]
)
def test_schemes_that_no_stage_enumerates_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="num_probes = 1"):
        AuditSettings(config=SpeculationConfig(**options))
