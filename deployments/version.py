"""Which versions answer: ours and those of what the numbers depend on."""

import platform
from importlib.metadata import PackageNotFoundError, version


def version_body() -> dict[str, str]:
    """Return the body of `GET /version`."""
    return {
        "version": _version_of("dflash-serve"),
        "torch": _version_of("torch"),
        "ray": _version_of("ray"),
        "python": platform.python_version(),
    }


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed: run from a checkout"
