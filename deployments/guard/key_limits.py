"""Holds each key to its limits; each ingress replica counts for itself."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar

from starlette._utils import get_route_path
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.error_response import error_response
from deployments.guard.account import Account, Accounts
from deployments.guard.auth import key_of
from deployments.guard.keys import NO_LIMITS, ApiKey
from deployments.guard.scopes import KeyScope, scope_for
from deployments.openai.errors import RefusedError
from deployments.wire import Step
from dflash.request import GenerateRequest

Clock = Callable[[], int]


class LimitedKeys:
    """Counts the requests of limited keys, and says in each answer what is left."""

    def __init__(self, app: ASGIApp, clock: Clock = time.monotonic_ns) -> None:
        """Wrap an app.

        Args:
            app: The app.
            clock: Tells the time, nanoseconds.
        """
        self._app = app
        self._clock = clock
        self._accounts = Accounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it before a byte of its body is read."""
        key = key_of(scope)
        if key is None or not _is_counted(scope, key):
            await self._app(scope, receive, send)
            return
        account = self._accounts.of(key, self._clock())

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(account.headers(self._clock()))
            await send(message)

        refusal = account.enter(self._clock())
        if refusal is not None:
            await error_response(scope, refusal)(scope, receive, send_with_limits)
            return
        spending = _Spending(account, self._clock)
        token = _SPENDING.set(spending)
        try:
            await self._app(scope, receive, send_with_limits)
        finally:
            _SPENDING.reset(token)
            spending.close()
            account.leave()


class _Spending:
    """The tokens of one HTTP request."""

    def __init__(self, account: Account, clock: Clock) -> None:
        self._account = account
        self._clock = clock
        self._num_untaken = 0

    def admit(self, num_tokens: int) -> None:
        refusal = self._account.admit_prompt(num_tokens, self._clock())
        if refusal is not None:
            raise RefusedError(refusal)
        self._num_untaken += num_tokens

    async def metered(self, steps: AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
        async with aclosing(steps):
            async for step in steps:
                if step.error is None:
                    self._num_untaken = 0
                if step.token_ids:
                    self._account.spend(len(step.token_ids), self._clock())
                yield step

    def close(self) -> None:
        """Give back what no engine took: a request that finds the queue full costs no tokens."""
        if self._num_untaken:
            self._account.spend(-self._num_untaken, self._clock())


# Set around a request of a limited key, so that what is between here and the engine need not know.
_SPENDING: ContextVar[_Spending | None] = ContextVar("spending", default=None)


def admit_prompts(requests: Sequence[GenerateRequest]) -> None:
    """Take the prompts' tokens from the limits of the key that asks, all or none.

    Raises:
        RefusedError: They are over what is left.
    """
    spending = _SPENDING.get()
    if spending is not None:
        # The choices of one prompt share it, and it is computed once.
        prompts = {id(request.prompt_token_ids): request.prompt_token_ids for request in requests}
        spending.admit(sum(map(len, prompts.values())))


def metered(steps: AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
    """Return an engine's steps, whose tokens count against the key that asks."""
    spending = _SPENDING.get()
    return steps if spending is None else spending.metered(steps)


def _is_counted(scope: Scope, key: ApiKey) -> bool:
    """Return whether a request is one of those that limits are about: it makes or counts tokens."""
    if scope["type"] != "http" or key.limits == NO_LIMITS:
        return False
    method = scope["method"]
    return method == "POST" and scope_for(method, get_route_path(scope)) is KeyScope.INFER
