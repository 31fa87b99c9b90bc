"""What a request leaves behind: its trace, the metrics, and what tracing costs."""
