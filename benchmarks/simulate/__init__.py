"""The policy over traces, against every baseline that could have been built instead."""
