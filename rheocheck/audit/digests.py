"""Digests of an instance and of its law: SHA-256 of canonical JSON.

Canonical JSON has sorted keys, no spaces, and fractions as "numerator/denominator" in lowest terms,
so that a digest can be made again by any program in any language.
"""

import base64
import hashlib
import json
from fractions import Fraction
from typing import Any, NamedTuple

from rheocheck.reference.families import Instance
from rheocheck.reference.laws import Draft, Law, Path, Target
from rheocheck.reference.models import Models
from rheocheck.reference.round_law import RoundLaw

SHORT_BYTES = 6
SHORT_LENGTH = 8  # characters of a short digest


class Digests(NamedTuple):
    """Two SHA-256 digests of 32 bytes.

    Attributes:
      instance: Of scheme, vocabulary and laws: what was asked.
      law: Of the emissions' probabilities and the expected acceptance: what came out.
    """

    instance: bytes
    law: bytes

    def short(self) -> str:
        """Both digests cut to SHORT_BYTES, base64 for URLs: 16 characters."""
        cut = self.instance[:SHORT_BYTES] + self.law[:SHORT_BYTES]
        return base64.urlsafe_b64encode(cut).decode("ascii")


def digests_of(instance: Instance, target: Target, draft: Draft, law: RoundLaw) -> Digests:
    """Digest an instance and its law.

    The laws that enter are those at every path that an emission goes through: the target's, and the
    draft's where the round may draft. They do not depend on which enumerator made `law`.

    Args:
      instance: The instance.
      target: Its target.
      draft: Its draft.
      law: Its law.

    Returns:
      The digests.
    """
    models = Models(target, draft)
    emissions = sorted(law.emissions.items())
    paths = sorted({path[:cut] for path, _ in emissions for cut in range(len(path))})
    drafted = instance.config.depth if not instance.num_tokens else instance.num_tokens
    asked = {
        "config": instance.config.model_dump(),
        "vocab": instance.vocab,
        "num_tokens": instance.num_tokens,
        "laws": [_laws(models, path, drafted) for path in paths],
    }
    found = {
        "emissions": [[list(path), _text(mass)] for path, mass in emissions],
        "expected_accepted": _text(law.expected_accepted),
    }
    return Digests(sha256_of(asked), sha256_of(found))


def sha256_of(value: Any) -> bytes:
    """SHA-256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).digest()


def _laws(models: Models, path: Path, drafted: int) -> list[Any]:
    shown = [list(path), _law(models.target(path))]
    if len(path) < drafted:
        ranking, draft = models.draft(path)
        shown += [_law(ranking), _law(draft)]
    return shown


def _law(law: Law) -> list[str]:
    return [_text(mass) for mass in law]


def _text(mass: Fraction) -> str:
    return f"{mass.numerator}/{mass.denominator}"
