"""The settings under `args` and `user_config` of `serve_config.yaml`, read strictly.

`dflashctl check serve_config.yaml` checks a whole file without starting anything.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.guard.settings import GuardSettings, RequestBounds
from deployments.pin_order import PinOrder
from deployments.strict import joined, problems_in, value_from
from dflash.config import EMBEDDED_MODEL, EngineConfig, EngineLimits
from dflash.errors import ConfigError
from policy.limits import Limits


@dataclass(frozen=True, slots=True)
class ServeArgs:
    """What `args` of the application can hold.

    Attributes:
        engine: The engine's settings.
        model_name: The name clients ask for; None takes the last part of `engine.model`.
        keys_file: Absolute path of the file of API keys; None lets everybody in.
        requests: Bounds of any one request.
        response_metrics: Whether answers say how they were decoded where clients do not ask.
    """

    engine: EngineConfig = field(default_factory=EngineConfig)
    model_name: str | None = None
    response_metrics: bool = False
    keys_file: str | None = None
    requests: RequestBounds = field(default_factory=RequestBounds)

    def __post_init__(self) -> None:
        if self.keys_file is not None and not Path(self.keys_file).is_absolute():
            raise ConfigError(
                f"keys_file must be an absolute path, got {self.keys_file!r}: replicas have "
                "working folders of their own"
            )

    @property
    def guarding(self) -> GuardSettings:
        """What stands before the routes is told."""
        return GuardSettings(self.keys_file, self.requests)

    @property
    def served_name(self) -> str:
        """The name clients ask for."""
        return self.model_name or Path(self.engine.model).name or EMBEDDED_MODEL


@dataclass(frozen=True, slots=True)
class UserConfig:
    """What `user_config` of the engine deployment can hold; it changes without a restart.

    Attributes:
        limits: Bounds of a step and of the queue.
        policy: Bounds of speculation.
        pins: Arms that are ordered instead of what the policy would choose.
    """

    limits: EngineLimits = field(default_factory=EngineLimits)
    policy: Limits = field(default_factory=Limits)
    pins: tuple[PinOrder, ...] = ()


def serve_args_from(args: Mapping[str, Any]) -> ServeArgs:
    """Return the application's settings.

    Raises:
        ConfigError: Something in them cannot work; the message has all problems.
    """
    return _read(ServeArgs, args, "args")


def limits_from_user_config(user_config: Any, default: EngineLimits) -> EngineLimits:
    """Return the limits of a `user_config`, or the default where it has none.

    Raises:
        ConfigError: Something in it cannot work; the message has all problems.
    """
    config = user_config_from(user_config)
    return config.limits if _given(user_config).get("limits") else default


def user_config_from(user_config: Any) -> UserConfig:
    """Return what a `user_config` holds; a key without a value counts as left out.

    Raises:
        ConfigError: Something in it cannot work; the message has all problems.
    """
    return _read(UserConfig, _given(user_config), "user_config")


def vain_orders(user_config: Any) -> str | None:
    """Return why orders to a policy do nothing where there is none; None where none are given."""
    config = user_config_from(user_config)
    if config.policy == Limits() and not config.pins:
        return None
    return (
        "limits are in force; user_config.policy and pins are not, for no policy decides here: set "
        "engine.speculation.draft_length to auto, or take them out"
    )


def _given(user_config: Any) -> Any:
    if not isinstance(user_config, Mapping):
        return user_config or {}
    return {key: value for key, value in user_config.items() if value is not None}


def _read(schema: type[Any], value: object, path: str) -> Any:
    problems = problems_in(schema, value, (path,))
    if problems:
        raise ConfigError(joined(problems))
    return value_from(schema, value)


if __name__ == "__main__":
    from deployments.check import main

    sys.exit(main(sys.argv[1:]))
