"""The seal of a whole certificate file: SHA-256 of its JSON, kept among its facts.

It finds any change by one who does not seal the file again. Against one who does, a file is as good
as what can be made again from it: see `certificate_check`.
"""

import copy
import json
from typing import Any

from rheocheck.audit.digests import sha256_of
from rheocheck.certificate import Report

SEAL = "file_sha256"


def seal_report(report: Report) -> None:
    """Put the seal of everything else that the report says into its facts."""
    report.facts.pop(SEAL, None)
    report.facts[SEAL] = seal_of(json.loads(report.model_dump_json()))


def seal_of(value: Any) -> str:
    """SHA-256 of a file's JSON value without its seal, in hexadecimal."""
    bare = copy.deepcopy(value)
    if isinstance(bare, dict) and isinstance(bare.get("facts"), dict):
        bare["facts"].pop(SEAL, None)
    return sha256_of(bare).hex()


def is_sealed(value: Any) -> bool:
    """Whether a file's JSON value has the seal that it must have."""
    facts = value.get("facts") if isinstance(value, dict) else None
    return isinstance(facts, dict) and facts.get(SEAL) == seal_of(value)
