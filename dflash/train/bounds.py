"""Bounds of numbers from the command line, refused by the option's name."""

import math

from dflash.errors import ConfigError


def check_within(option: str, value: float, least: float, most: float = math.inf) -> None:
    """Refuse a number outside ``[least, most]``; what is not a number is outside.

    Raises:
        ConfigError: It names the option, the value and the bounds.
    """
    if not least <= value <= most:
        bounds = f"{least} or more" if most == math.inf else f"in [{least}, {most}]"
        raise ConfigError(f"{option} must be {bounds}, got {value}")


def check_positive(option: str, value: float) -> None:
    """Refuse a number that is not above 0, or not finite.

    Raises:
        ConfigError: It names the option and the value.
    """
    if not 0 < value < math.inf:
        raise ConfigError(f"{option} must be above 0 and finite, got {value}")
