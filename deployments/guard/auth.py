"""Whether a request may do what it asks: the key it shows, and the scope of its path."""

from collections.abc import Mapping

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
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="dflash-serve"'}


class Auth:
    """Lets through what a key in force allows, and what needs none."""

    def __init__(self, app: ASGIApp, keys: KeysFile, pages: Mapping[str, Response]) -> None:
        """Wrap an app.

        Args:
            app: The app.
            keys: The keys in force.
            pages: By path, what a browser without a key is shown there with the 401: a page that
                asks people for one. It tells what a stranger may know.
        """
        self._app = app
        self._keys = keys
        self._pages = pages
        for page in pages.values():
            page.headers.update(_CHALLENGE)

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
        elif key is not None:
            error = errors.forbidden_scope(key.name, needed.value)
            await error_response(scope, error)(scope, receive, send)
        else:
            error = errors.invalid_api_key(is_shown=shown is not None)
            answer = error_response(scope, error, _CHALLENGE)
            await (self._page_for(scope) or answer)(scope, receive, send)

    def _page_for(self, scope: Scope) -> Response | None:
        """Return what asks whoever sits before a browser for a key; None for programs."""
        is_browser = "text/html" in Headers(scope=scope).get("accept", "")
        if scope["method"] == "GET" and is_browser:
            return self._pages.get(get_route_path(scope))
        return None


def key_of(scope: Scope) -> ApiKey | None:
    """Return the key that a request showed; None where it needed and had none."""
    return scope.get(_KEY)


def may_see_details(scope: Scope) -> bool:
    """Return whether an answer may say more than strangers need: anybody, while no keys are set."""
    key = key_of(scope)
    return _KEY not in scope or (key is not None and key.may(KeyScope.STATUS))


def _shown_key(scope: Scope) -> bytes | None:
    """Return the key in a request's header; None where there is none, or nothing like one."""
    given = Headers(scope=scope).getlist("authorization")
    scheme, _, value = (given[0] if len(given) == 1 else "").partition(" ")
    key = value.strip().encode("latin-1")
    is_one = scheme.lower() == "bearer" and 0 < len(key) <= MAX_KEY_CHARACTERS
    return key if is_one else None
