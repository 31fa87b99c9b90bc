"""Every metric there is: the one list that `/metrics`, OTLP and `docs/metrics.md` are made of."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dflash.durations import TOKEN_BOUNDS_S

# From a cached prompt on a fast device to a long answer of a slow one.
REQUEST_BOUNDS_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0),
)


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, and what it stands for.

    Attributes:
        name: With its prefix, and the suffix that its kind and unit ask for.
        kind: Counter, gauge or histogram.
        unit: Of its values, in words.
        labels: Names of its labels, in order; where it comes from first.
        meaning: A sentence.
        bounds: Upper ends of a histogram's buckets.
        genai_name: Under which it goes out over OTLP once more, after OpenTelemetry's conventions.
    """

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    meaning: str
    bounds: tuple[float, ...] = ()
    genai_name: str | None = None


_ENGINE = ("model", "replica")
_INGRESS = ("model", "ingress")
_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

NUM_DRAFTS = Metric(
    "dflash_spec_decode_num_drafts_total",
    _COUNTER,
    "drafts",
    (*_ENGINE, "mode"),
    "Drafts verified: one for each request and step that had draft tokens.",
)
NUM_DRAFT_TOKENS = Metric(
    "dflash_spec_decode_num_draft_tokens_total",
    _COUNTER,
    "tokens",
    (*_ENGINE, "mode"),
    "Draft tokens verified.",
)
NUM_ACCEPTED_TOKENS = Metric(
    "dflash_spec_decode_num_accepted_tokens_total",
    _COUNTER,
    "tokens",
    (*_ENGINE, "mode"),
    "Draft tokens kept; the extra token of each verify run is not among them.",
)
NUM_ACCEPTED_PER_POS = Metric(
    "dflash_spec_decode_num_accepted_tokens_per_pos_total",
    _COUNTER,
    "tokens",
    (*_ENGINE, "mode", "position"),
    "Draft tokens kept at a position of their draft; the first is 0.",
)
SPEC_INACTIVE = Metric(
    "dflash_spec_inactive_total",
    _COUNTER,
    "decode steps of requests",
    (*_ENGINE, "reason"),
    "Times a request decoded without a draft token; `docs/request-life.md` has the reasons.",
)
STEP_TIME = Metric(
    "dflash_step_time_seconds",
    _HISTOGRAM,
    "seconds",
    (*_ENGINE, "mode"),
    "Wall time of an engine step. `mode` is who drafted for most requests, `plain` where nobody "
    "did, `prefill` where nothing decoded.",
    TOKEN_BOUNDS_S,
)
POLICY_DRAFT_LEN = Metric(
    "dflash_policy_draft_len", _GAUGE, "tokens", _ENGINE, "Draft length in force."
)
POLICY_MODE = Metric(
    "dflash_policy_mode",
    _GAUGE,
    "0 or 1",
    (*_ENGINE, "mode"),
    "1 for the drafter in force, or for `plain`; 0 for the others.",
)
POLICY_DECISIONS = Metric(
    "dflash_policy_decisions_total",
    _COUNTER,
    "decisions",
    (*_ENGINE, "from", "to", "reason"),
    "Decisions that changed the arm, its reason or what is released, by the drafters before and "
    "after; `policy.reasons.Reason` has the reasons.",
)
POLICY_DECISION_AGE = Metric(
    "dflash_policy_decision_age_seconds",
    _GAUGE,
    "seconds",
    _ENGINE,
    "Since the arm in force took over, trials apart.",
)
POLICY_EXPECTED_GAIN = Metric(
    "dflash_policy_expected_gain_ratio",
    _GAUGE,
    "ratio",
    _ENGINE,
    "What the arm in force is believed to be worth; plain decoding is 1.",
)
POLICY_REALISED_GAIN = Metric(
    "dflash_policy_realised_gain_ratio",
    _GAUGE,
    "ratio",
    _ENGINE,
    "How many times as fast the last paired trial found an arm as the one it was compared with.",
)
POLICY_PINNED = Metric(
    "dflash_policy_pinned", _GAUGE, "0 or 1", _ENGINE, "1 while an operator's pin is in force."
)
DEVICE_MEMORY = Metric(
    "dflash_device_memory_bytes",
    _GAUGE,
    "bytes",
    (*_ENGINE, "component"),
    "Device memory by component; the components sum to what the device has, or what this process "
    "may use of the machine.",
)
KV_CACHE_USAGE = Metric(
    "dflash_kv_cache_usage_ratio",
    _GAUGE,
    "ratio",
    _ENGINE,
    "Pages that requests own over all pages.",
)
NUM_RUNNING = Metric(
    "dflash_num_requests_running", _GAUGE, "requests", _ENGINE, "Requests that hold pages."
)
NUM_WAITING = Metric(
    "dflash_num_requests_waiting", _GAUGE, "requests", _ENGINE, "Requests in the engine's queue."
)
NUM_DECODING = Metric(
    "dflash_num_requests_decoding",
    _GAUGE,
    "requests",
    _ENGINE,
    "Requests that decoded in the newest step, which is the load that the policy sees.",
)
NUM_PREEMPTIONS = Metric(
    "dflash_num_preemptions_total",
    _COUNTER,
    "preemptions",
    _ENGINE,
    "Times a request lost its pages to an older one.",
)
PREFIX_QUERIES = Metric(
    "dflash_prefix_cache_queries_total",
    _COUNTER,
    "tokens",
    _ENGINE,
    "Prompt tokens that were looked up in the prefix cache.",
)
PREFIX_HITS = Metric(
    "dflash_prefix_cache_hits_total",
    _COUNTER,
    "tokens",
    _ENGINE,
    "Of those, the ones that needed no computing.",
)
PROMPT_TOKENS = Metric(
    "dflash_prompt_tokens_total",
    _COUNTER,
    "tokens",
    _ENGINE,
    "Prompt tokens computed, those after a preemption included.",
)
GENERATION_TOKENS = Metric(
    "dflash_generation_tokens_total", _COUNTER, "tokens", _ENGINE, "Tokens emitted."
)

TIME_TO_FIRST_TOKEN = Metric(
    "dflash_time_to_first_token_seconds",
    _HISTOGRAM,
    "seconds",
    _INGRESS,
    "From a request's arrival at the ingress to its first token there.",
    REQUEST_BOUNDS_S,
    "gen_ai.server.time_to_first_token",
)
TIME_PER_OUTPUT_TOKEN = Metric(
    "dflash_request_time_per_output_token_seconds",
    _HISTOGRAM,
    "seconds",
    _INGRESS,
    "Mean time of a request's tokens after its first.",
    TOKEN_BOUNDS_S,
    "gen_ai.server.time_per_output_token",
)
INTER_TOKEN_LATENCY = Metric(
    "dflash_inter_token_latency_seconds",
    _HISTOGRAM,
    "seconds",
    _INGRESS,
    "Between two chunks of an answer; a chunk holds all tokens of a step.",
    TOKEN_BOUNDS_S,
)
E2E_LATENCY = Metric(
    "dflash_e2e_request_latency_seconds",
    _HISTOGRAM,
    "seconds",
    _INGRESS,
    "From a request's arrival to its last byte, where an answer was begun.",
    REQUEST_BOUNDS_S,
    "gen_ai.server.request.duration",
)
QUEUE_TIME = Metric(
    "dflash_request_queue_time_seconds",
    _HISTOGRAM,
    "seconds",
    _INGRESS,
    "In the queue of the engine that took the request first.",
    REQUEST_BOUNDS_S,
)
HTTP_REQUESTS = Metric(
    "dflash_http_requests_total",
    _COUNTER,
    "requests",
    (*_INGRESS, "route", "status", "code"),
    "HTTP requests by route, status and error code; `code` is empty where none went wrong.",
)

ENGINE_METRICS: Final = (
    *(NUM_DRAFTS, NUM_DRAFT_TOKENS, NUM_ACCEPTED_TOKENS, NUM_ACCEPTED_PER_POS, SPEC_INACTIVE),
    *(STEP_TIME, POLICY_DRAFT_LEN, POLICY_MODE, POLICY_DECISIONS, POLICY_DECISION_AGE),
    *(POLICY_EXPECTED_GAIN, POLICY_REALISED_GAIN, POLICY_PINNED, DEVICE_MEMORY, KV_CACHE_USAGE),
    *(NUM_RUNNING, NUM_WAITING, NUM_DECODING, NUM_PREEMPTIONS, PREFIX_QUERIES, PREFIX_HITS),
    *(PROMPT_TOKENS, GENERATION_TOKENS),
)
INGRESS_METRICS: Final = (
    *(TIME_TO_FIRST_TOKEN, TIME_PER_OUTPUT_TOKEN, INTER_TOKEN_LATENCY, E2E_LATENCY, QUEUE_TIME),
    HTTP_REQUESTS,
)
METRICS: Final = (*ENGINE_METRICS, *INGRESS_METRICS)
