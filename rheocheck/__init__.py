"""rheocheck: proves that a speculative-decoding sampler is lossless, or shows where it is not."""

from importlib.metadata import PackageNotFoundError, version

from rheocheck.config import SamplingConfig, SpeculationConfig
from rheocheck.reference import exact_law

try:
    __version__ = version("rheocheck")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = ["SamplingConfig", "SpeculationConfig", "__version__", "exact_law"]
