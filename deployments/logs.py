"""Our log lines go where Serve's go: its files, and the terminal that ran it."""

import logging

_SERVE_LOGGER = "ray.serve"
_OUR_LOGGERS = ("deployments", "dflash")


def join_serve_log() -> None:
    """Write our lines of level INFO and above through Serve's handlers, in a Serve process.

    Serve sets up its own logger only; without this, the memory plan and what the probe found
    would be lost in a replica.
    """
    serve_logger = logging.getLogger(_SERVE_LOGGER)
    if not serve_logger.handlers:
        return
    for name in _OUR_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = list(serve_logger.handlers)
        logger.setLevel(logging.INFO)
        # The root logger may have handlers too, and would write each line twice.
        logger.propagate = False
