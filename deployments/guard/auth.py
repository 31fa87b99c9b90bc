"""Whether a request may do what it asks: the key it shows, and the scope of its path."""

import base64
import binascii

from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.error_response import error_response
from deployments.guard.keys import MAX_KEY_CHARACTERS, ApiKey
from deployments.guard.keys_file import KeysFile
from deployments.guard.scopes import KeyScope, scope_for
from deployments.openai import errors

_KEY = "dflash.api_key"
_POLICY_VIOLATION = 1008
# Browsers ask people for a key when they are asked so. They add what people said to requests of
# other sites too, so it counts for reading only.
_ASK_PEOPLE = 'Basic realm="dflash-serve: any name, the API key as password", charset="UTF-8"'
_READING = ("GET", "HEAD")


class Auth:
    """Lets through what a key in force allows, and what needs none."""

    def __init__(self, app: ASGIApp, keys: KeysFile) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it before a byte of its body is read."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        shown = _shown_key(scope)
        key = self._keys.ring.find(shown) if shown is not None else None
        scope[_KEY] = key
        # The router's own reading, so that the two can never mean different paths.
        needed = scope_for(scope.get("method", "GET"), get_route_path(scope))
        if needed is None or (key is not None and key.may(needed)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await _refusal(scope, needed, is_shown=shown is not None)(scope, receive, send)


def key_of(scope: Scope) -> ApiKey | None:
    """Return the key that a request showed; None where it needed and had none."""
    return scope.get(_KEY)


def may_see_details(scope: Scope) -> bool:
    """Return whether an answer may say more than strangers need: anybody, while no keys are set."""
    key = key_of(scope)
    return _KEY not in scope or (key is not None and key.may(KeyScope.STATUS))


def _refusal(scope: Scope, needed: KeyScope, *, is_shown: bool) -> Response:
    key = key_of(scope)
    if key is not None:
        return error_response(scope, errors.forbidden_scope(key.name, needed.value))
    answer = error_response(scope, errors.invalid_api_key(is_shown=is_shown))
    answer.headers.append("WWW-Authenticate", 'Bearer realm="dflash-serve"')
    if needed is KeyScope.STATUS:
        answer.headers.append("WWW-Authenticate", _ASK_PEOPLE)
    return answer


def _shown_key(scope: Scope) -> bytes | None:
    """Return the key in a request's header; None where there is none, or nothing like one."""
    given = Headers(scope=scope).getlist("authorization")
    scheme, _, value = (given[0] if len(given) == 1 else "").partition(" ")
    key: bytes | None = None
    if scheme.lower() == "bearer":
        key = value.strip().encode("latin-1")
    elif scheme.lower() == "basic" and scope.get("method") in _READING:
        key = _password_in(value.strip())
    return key if key and len(key) <= MAX_KEY_CHARACTERS else None


def _password_in(credentials: str) -> bytes | None:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return None
