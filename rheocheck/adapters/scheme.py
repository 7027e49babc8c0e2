"""This project's own scheme as a sampler under test, by its eager reference."""

from collections.abc import Iterator
from dataclasses import dataclass

from rheocheck.config import SpeculationConfig
from rheocheck.protocols import Choose, LawFunction, Path
from rheocheck.reference import OracleDraws, sample_round


@dataclass(frozen=True, slots=True)
class Scheme:
    """One round of dual-identity tree drafting and verification.

    Attributes:
      config: The scheme; the default is small enough to enumerate eagerly.
    """

    config: SpeculationConfig = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2)  # noqa: RUF009

    def smaller(self) -> Iterator["Scheme"]:
        """Schemes with one number lowered."""
        values = self.config.model_dump()
        for name, least in (("budget", 1), ("depth", 1), ("top_k", 1), ("num_top", 0)):
            if values[name] > least:
                yield Scheme(SpeculationConfig(**{**values, name: values[name] - 1}))

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        return sample_round(target, draft, self.config, OracleDraws(choose)).emission


sampler = Scheme()
