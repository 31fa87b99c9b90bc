"""``python -m benchmarks.telemetry``: a request's trace, the metrics' names, and tracing's cost.

Everything but the engine is the real thing, over HTTP; the engine says what is written for it.
"""

import logging
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.report import Options, Result, Table, run_benchmark
from benchmarks.telemetry.collector import VARIABLE, variable
from benchmarks.telemetry.cost import STEP_S, TOKENS_A_MESSAGE, Load, median_of, rounds_of
from tests.rigs.http_server import MODEL, eventually, serving
from tests.rigs.otlp_receiver import Received, ReceivedSpan, receiving

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
_LISTED = re.compile(r"^\| `(dflash_\w+)` \|", re.MULTILINE)
_FULL_ROUNDS, _QUICK_ROUNDS = 30, 8
_NS_PER_MS = 1e6


def measure(options: Options) -> Result:
    """Look at one request, at the metrics' names, and at what tracing costs."""
    # A line for each request would bury the tables.
    logging.getLogger("deployments").setLevel(logging.WARNING)
    with receiving() as received:
        text = _one_streamed_request(received)
    documented = set(_LISTED.findall(_PAGE.read_text(encoding="utf-8")))
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text)
    }
    problems, checker = _problems_of(text)
    rounds = rounds_of(_QUICK_ROUNDS if options.quick else _FULL_ROUNDS, Load())
    cost_us = median_of([each.cost_us for each in rounds])
    noise_us = median_of([abs(each.noise_us) for each in rounds])
    figures = {
        "spans_per_request": len(received.spans),
        "metrics": len(served),
        "metrics_undocumented": len(served - documented),
        "metrics_missing": len(documented - served),
        "metrics_text_problems": len(problems),
        "tracing_us_per_token": cost_us,
        "tracing_us_per_token_of_nothing": noise_us,
        "cpu_us_per_token_untraced": median_of([each.off_us for each in rounds]),
    }
    return Result(
        figures=figures,
        must_hold={
            "spans_per_request": 2,
            "metrics_undocumented": 0,
            "metrics_missing": 0,
            "metrics_text_problems": 0,
        },
        conditions={"tokens_a_message": TOKENS_A_MESSAGE, "text_checked_by": checker},
        detail={
            "spans": [asdict(span) for span in received.spans],
            "rounds": [asdict(each) for each in rounds],
            "undocumented": sorted(served - documented),
            "missing": sorted(documented - served),
        },
        tables=(_tree(received.spans), _attributes(received.spans)),
        notes=(
            *problems,
            f"The text of /metrics was checked by {checker}.",
            "CPU per token is that of server, scripted engine and client in one process; the "
            "collector is another. The last but one figure is what two servers without tracing "
            "differ by.",
        ),
    )


def _one_streamed_request(received: Received) -> str:
    """Serve one request with tracing on; return the text of `/metrics` after it."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 21,
        "stream": True,
    }
    with variable(VARIABLE, received.endpoint), serving() as server:
        server.loop.tokens_per_step, server.loop.step_s = TOKENS_A_MESSAGE, STEP_S
        httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=30)
        eventually(lambda: len(received.spans) >= 2)
        return httpx.get(f"{server.base_url}/metrics").text


def _problems_of(text: str) -> tuple[list[str], str]:
    """Return what is wrong with a text for Prometheus, and who looked."""
    promtool = shutil.which("promtool")
    if promtool is None:
        list(text_string_to_metric_families(text))
        return [], "the parser of prometheus_client, for there is no promtool here"
    command = [promtool, "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    problems = [line for line in checked.stderr.splitlines() if line]
    if checked.returncode and not problems:
        problems = [f"promtool ended with {checked.returncode}"]
    return problems, "promtool"


def _tree(spans: list[ReceivedSpan]) -> Table:
    """Return the spans, children beneath their parents, with their moments."""
    return Table(
        title="The trace of one streamed request, milliseconds since it arrived",
        columns=("span or event", "begins", "ends"),
        rows=tuple(_rows(spans, "", 0)),
    )


def _rows(spans: list[ReceivedSpan], parent_id: str, depth: int) -> Iterator[tuple[str, str, str]]:
    start_ns = min((span.start_ns for span in spans), default=0)

    def ms(at_ns: int) -> str:
        return f"{(at_ns - start_ns) / _NS_PER_MS:.2f}"

    for span in spans:
        if span.parent_id == parent_id:
            indent = "  " * depth
            yield f"{indent}{span.name}", ms(span.start_ns), ms(span.end_ns)
            for name, at_ns, _ in span.events:
                yield f"{indent}  . {name}", ms(at_ns), ""
            yield from _rows(spans, span.span_id, depth + 1)


def _attributes(spans: list[ReceivedSpan]) -> Table:
    (front,) = [span for span in spans if not span.parent_id]
    rows = tuple((name, str(value)) for name, value in sorted(front.attributes.items()))
    return Table(title="Its attributes", columns=("name", "value"), rows=rows)


if __name__ == "__main__":
    run_benchmark("telemetry", "A request's trace, the metrics' names, tracing's cost.", measure)
