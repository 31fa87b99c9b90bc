"""A child process that the kernel ends with its parent, however the parent ends."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def end_with_parent() -> None:
    """Ask the kernel to end this process with its parent; for ``preexec_fn``.

    A benchmark that is killed cannot stop what it started, and a frozen child cannot notice.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
