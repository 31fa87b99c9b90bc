"""Times as people read them: how long ago, and the hour."""

from datetime import UTC, datetime

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def age_words(seconds: float) -> str:
    """Return a length of time in its largest unit, such as ``12 min``."""
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            return f"{int(seconds / unit_s)} {name}"
    return f"{int(max(0.0, seconds))} s"


def iso_time(epoch_s: float) -> str:
    """Return a moment as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
