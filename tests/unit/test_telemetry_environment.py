"""OpenTelemetry's standard variables: what is sent, where, how often, and when nothing is."""

import logging

import pytest

from deployments.telemetry.environment import Exports, exports_from

BOTH, NONE = Exports(True, True), Exports()
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environment", "exports"),
    [
        ({}, NONE),
        ({"OTEL_SERVICE_NAME": "mine"}, NONE),
        (ENDPOINT, BOTH),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, NONE),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, Exports(traces=True)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/v1/m"}, Exports(metrics=True)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, Exports(traces=True)),
        ({"OTEL_METRICS_EXPORTER": " OTLP "}, Exports(metrics=True)),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, Exports(metrics=True)),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, Exports(traces=True)),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, NONE),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, NONE),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, BOTH),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, BOTH),
    ],
)
def test_nothing_is_sent_unless_a_variable_says_so(environment: dict[str, str], exports: Exports):
    assert exports_from(environment) == exports


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "grpc"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "zipkin"),
    ],
)
def test_what_is_asked_for_and_not_served_is_said(
    more: dict[str, str], word: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        assert not exports_from({**ENDPOINT, **more}).traces
    assert word in caplog.text
