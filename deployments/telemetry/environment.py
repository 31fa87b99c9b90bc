"""What OpenTelemetry's standard environment variables ask for."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

_PROTOCOL = "http/protobuf"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exports:
    """Which signals are sent by OTLP.

    Attributes:
        traces: Whether spans are.
        metrics: Whether metrics are.
    """

    traces: bool = False
    metrics: bool = False


def exports_from(environment: Mapping[str, str]) -> Exports:
    """Return what to send: nothing, unless a variable names a collector or asks for OTLP."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Exports()
    return Exports(_is_sent("TRACES", environment), _is_sent("METRICS", environment))


def _is_sent(signal: str, environment: Mapping[str, str]) -> bool:
    own = f"OTEL_EXPORTER_OTLP_{signal}_"
    has_endpoint = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environment.get(
        f"{own}ENDPOINT"
    )
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter not in ("", "otlp", "none"):
        logger.warning("OTEL_%s_EXPORTER is %r; otlp and none are served", signal, exporter)
        return False
    if exporter == "none" or not (has_endpoint or exporter):
        return False
    protocol = environment.get(f"{own}PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", _PROTOCOL):
        logger.warning(
            "OTLP speaks %s here, and %s is asked for; %s are not sent: set %sPROTOCOL to %s and "
            "name the collector's HTTP endpoint",
            *(_PROTOCOL, protocol, signal.lower(), own, _PROTOCOL),
        )
        return False
    return True
