"""Where a drafter is trained."""

import torch

from dflash.errors import ConfigError


def training_device(name: str) -> torch.device:
    """Return the device of a name.

    Args:
        name: ``cpu``, ``cuda`` or ``cuda:`` with a number; ``auto`` takes a CUDA device where
            there is one.

    Raises:
        ConfigError: This machine has no such device.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ["cuda", *(f"cuda:{index}" for index in range(count))] if count else []
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    usable = ["cpu", *cuda]
    if name not in usable:
        raise ConfigError(
            f"--device is {name}, which this machine does not have; use auto or one of: "
            f"{', '.join(usable)}"
        )
    return torch.device(name)
