"""What every suite runs under: one thread, no network, no clock in the verdict."""

import os

# Read when torch and the hub client are imported, so set before any test module is.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # A change must not fail for an example that the last run did not try; people's own runs look
    # for new ones.
    derandomize="CI" in os.environ,
)
settings.load_profile("suite")
