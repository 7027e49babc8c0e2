"""Several tests in one run: Holm's correction keeps the run's false-alarm rate."""

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm-adjusted p-values: all below `level` together are false with probability <= level.

    Args:
      p_values: Unadjusted p-values by name, each in [0, 1]; any dependence between them is allowed.

    Returns:
      The adjusted p-values under the same names, each at least the unadjusted one and at most 1.
      Empty for an empty mapping. Equal p-values get equal adjusted ones.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    adjusted: dict[str, float] = {}
    running = 0.0
    for position, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        running = max(running, (len(p_values) - position) * p_values[name])
        adjusted[name] = min(1.0, running)
    return {name: adjusted[name] for name in p_values}
