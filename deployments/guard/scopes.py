"""What a key may do, and what each path asks of it."""

from enum import StrEnum

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
# What an orchestrator asks without a key. Exactly these: `/livez/` is another path.
PROBES = frozenset({"/livez", "/readyz", "/startupz", "/health"})


class KeyScope(StrEnum):
    """One thing that a key may do. ``admin`` includes the others."""

    INFER = "infer"
    METRICS = "metrics"
    STATUS = "status"
    ADMIN = "admin"


# A path asks for the scope of the first part that leads to it; all others ask for admin, so that
# no new route is open because somebody forgot it here.
_SCOPES = {
    "/v1": KeyScope.INFER,
    "/tokenize": KeyScope.INFER,
    "/detokenize": KeyScope.INFER,
    "/openapi.json": KeyScope.INFER,
    "/metrics": KeyScope.METRICS,
    "/version": KeyScope.STATUS,
    "/policy": KeyScope.STATUS,
    "/status": KeyScope.STATUS,
}


def scope_for(method: str, path: str) -> KeyScope | None:
    """Return what a request must be allowed to do; None where nothing is asked.

    Args:
        method: Its method, in capitals.
        path: Its path, as the router reads it.
    """
    if path in PROBES:
        return None
    scope = _SCOPES.get("/" + path.removeprefix("/").partition("/")[0], KeyScope.ADMIN)
    # Whoever may look at something may not change it.
    if scope in (KeyScope.METRICS, KeyScope.STATUS) and method not in _READING:
        return KeyScope.ADMIN
    return scope
