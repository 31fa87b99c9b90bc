"""What is said of requests and engines while they run: records, spans, metrics and log lines."""
