"""Settings of every test: one thread, no network, the same examples in each run."""

import os

from hypothesis import settings

# Read by OpenMP when torch or numpy is first imported, hence before any test module.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

# A fixed seed: a red run is a defect, never chance. The time of an example is no result here.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")


def pytest_configure() -> None:
    """Keep torch to one thread in this process: two contend and are many times slower."""
    try:
        import torch
    except ModuleNotFoundError:  # the core is tested without the extra
        return
    torch.set_num_threads(1)
