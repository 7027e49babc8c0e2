"""This project's own scheme as a sampler under test, by its eager reference."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rheocheck.config import SpeculationConfig
from rheocheck.protocols import Choose, LawFunction, Path, note
from rheocheck.reference import OracleDraws, Role, sample_round


@dataclass(frozen=True, slots=True)
class Scheme:
    """One round of dual-identity tree drafting and verification.

    Attributes:
      config: The scheme; the default is small enough to enumerate eagerly.
    """

    draft_pairs: ClassVar[bool] = True
    config: SpeculationConfig = SpeculationConfig(top_k=2, num_top=1, budget=3, depth=2)  # noqa: RUF009

    def smaller(self) -> Iterator["Scheme"]:
        """Schemes with one number lowered."""
        values = self.config.model_dump()
        for name, least in (("budget", 1), ("depth", 1), ("top_k", 1), ("num_top", 0)):
            if values[name] > least:
                yield Scheme(SpeculationConfig(**{**values, name: values[name] - 1}))

    def __call__(self, target: LawFunction, draft: LawFunction, choose: Choose) -> Path:
        """Run one round."""
        drafted = sample_round(target, draft, self.config, OracleDraws(choose))
        survivors = drafted.tree.survivors
        note(choose, "tree", [node.path for node in survivors])
        for node in (node for layer in drafted.tree.layers for node in layer):
            if node.role is Role.PROBE:
                place = f"slot {node.key.slot} after {node.path[:-1]}"
                note(choose, "survives", (place, node.token, node in survivors))
        return drafted.emission


sampler = Scheme()
