"""Random families of target and draft laws, and what temperature does to a law."""

import math
from dataclasses import dataclass

import numpy as np

from rheocheck.bounds.laws import Array, Tokens
from rheocheck.errors import InputError

KINDS = ("dirichlet", "zipf", "zipf-near")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of pairs of laws.

    Attributes:
      kind: "dirichlet": target and draft independent, symmetric with this concentration. "zipf":
        independent, ranks shuffled, exponents uniform in [0.7, 2]. "zipf-near": a Zipf draft, and
        log target = log draft + `parameter` * normal noise, which is what a trained draft is like.
      parameter: Concentration, or size of the noise; unused by "zipf".
    """

    kind: str
    parameter: float = 1.0

    @property
    def name(self) -> str:
        """As `parse_family` reads it."""
        return self.kind if self.kind == "zipf" else f"{self.kind}:{self.parameter:g}"

    def draw(
        self, generator: np.random.Generator, sizes: Tokens, vocab: int
    ) -> tuple[Array, Array]:
        """Laws of several nodes.

        Args:
          generator: Where randomness comes from.
          sizes: [node] tokens of each node; the others have mass 0 under both laws.
          vocab: Length of the rows, at least the largest size.

        Returns:
          [node, vocab] target laws and [node, vocab] draft laws.
        """
        inside = np.arange(vocab) < np.asarray(sizes)[:, np.newaxis]
        if self.kind == "dirichlet":
            logs = [_log_gammas(generator, self.parameter, inside.shape) for _ in range(2)]
        elif self.kind == "zipf":
            logs = [_log_zipf(generator, inside) for _ in range(2)]
        else:
            draft = _log_zipf(generator, inside)
            logs = [draft + self.parameter * generator.standard_normal(inside.shape), draft]
        target, draft = (softmax(np.where(inside, log, -np.inf)) for log in logs)
        return target, draft


DEFAULT_FAMILIES = (
    Family("dirichlet", 0.1),
    Family("dirichlet", 0.3),
    Family("dirichlet", 1.0),
    Family("zipf"),
    Family("zipf-near", 0.3),
    Family("zipf-near", 1.0),
    Family("zipf-near", 2.0),
)


def parse_family(text: str) -> Family:
    """Read "dirichlet:0.3", "zipf" or "zipf-near:1".

    Raises:
      InputError: An unknown kind, or a parameter that is missing, not positive or not finite.
    """
    kind, _, given = text.partition(":")
    if kind not in KINDS:
        raise InputError(f"family {text!r}; required: one of {', '.join(KINDS)}, as dirichlet:0.3")
    if kind == "zipf" and not given:
        return Family(kind)
    try:
        parameter = float(given)
    except ValueError:
        parameter = math.nan
    if kind == "zipf" or not 0 < parameter < math.inf:
        wanted = "no parameter" if kind == "zipf" else "a positive number after the colon"
        raise InputError(f"family {text!r}; required by {kind}: {wanted}")
    return Family(kind, parameter)


def tempered(law: Array, temperature: float) -> Array:
    """Laws at another temperature: mass ** (1 / temperature), normalised.

    Args:
      law: [..., vocab] laws at temperature 1.
      temperature: 0 gives the point mass on the first most probable token, as a greedy request.

    Returns:
      [..., vocab] laws with the same support, but at temperature 0.

    Raises:
      InputError: A temperature that is negative or not finite.
    """
    if not 0 <= temperature < math.inf:
        raise InputError(f"temperature = {temperature!r}; required: a finite number, at least 0")
    if temperature == 1:
        return law
    if temperature == 0:
        return np.asarray(np.arange(law.shape[-1]) == law.argmax(axis=-1)[..., np.newaxis], float)
    with np.errstate(divide="ignore"):
        return softmax(np.log(law) / temperature)


def softmax(logits: Array) -> Array:
    """[..., vocab] laws of logits, of which minus infinity means mass 0."""
    masses = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(masses / masses.sum(axis=-1, keepdims=True))


def _log_gammas(generator: np.random.Generator, shape: float, size: tuple[int, ...]) -> Array:
    """Logs of gamma variables; a small shape underflows without them.

    Source: if G has shape a + 1 and U is uniform, G * U ** (1 / a) has shape a (Marsaglia and Tsang
    2000, section 6).
    """
    larger = np.log(generator.standard_gamma(shape + 1, size))
    return np.asarray(larger + np.log1p(-generator.random(size)) / shape)


def _log_zipf(generator: np.random.Generator, inside: Array) -> Array:
    """[node, vocab] minus exponent * log rank, ranks shuffled among the tokens inside."""
    keys = np.where(inside, generator.random(inside.shape), np.inf)
    ranks = keys.argsort(axis=-1).argsort(axis=-1) + 1
    exponents = generator.uniform(0.7, 2.0, (len(inside), 1))
    return np.asarray(-exponents * np.log(ranks))
