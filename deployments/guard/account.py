"""What one key has used here, and what it may still use."""

from deployments.guard.keys import ApiKey, KeyLimits
from deployments.guard.token_bucket import TokenBucket
from deployments.openai import errors
from deployments.openai.errors import ApiError

_SECOND_NS = 1_000_000_000
# Nobody knows when a running request ends.
_RETRY_AFTER_LIVE_NS = _SECOND_NS


class Account:
    """The use of one key: full buckets at first, nothing running."""

    def __init__(self, limits: KeyLimits, now_ns: int) -> None:
        self._limits = limits
        self._requests = _bucket(limits.requests_per_minute, now_ns)
        self._tokens = _bucket(limits.tokens_per_minute, now_ns)
        self._num_live = 0

    def adopt(self, limits: KeyLimits, now_ns: int) -> None:
        """Take new limits where they differ; what runs stays counted."""
        if limits == self._limits:
            return
        self._limits = limits
        self._requests = _bucket(limits.requests_per_minute, now_ns)
        self._tokens = _bucket(limits.tokens_per_minute, now_ns)

    def enter(self, now_ns: int) -> ApiError | None:
        """Count a request in; return why it may not, which costs nothing."""
        most = self._limits.max_concurrent
        if most is not None and self._num_live >= most:
            return _refusal(f"max_concurrent is {most} for this API key", _RETRY_AFTER_LIVE_NS)
        if self._requests is not None:
            if not self._requests.has(1, now_ns):
                wait_ns = self._requests.wait_ns(1, now_ns)
                bound = f"requests_per_minute is {self._requests.per_minute} for this API key"
                return _refusal(bound, wait_ns)
            self._requests = self._requests.after(1, now_ns)
        self._num_live += 1
        return None

    def leave(self) -> None:
        """Count a request out."""
        self._num_live -= 1

    def admit_prompt(self, num_tokens: int, now_ns: int) -> ApiError | None:
        """Take a prompt's tokens; return why they may not be, which costs nothing.

        A prompt over a whole minute's worth is let in where nothing of it was used, and leaves a
        debt.
        """
        if self._tokens is None:
            return None
        if not self._tokens.has(num_tokens, now_ns):
            wait_ns = self._tokens.wait_ns(num_tokens, now_ns)
            num_left = self._tokens.remaining(now_ns)
            return _refusal(
                f"tokens_per_minute is {self._tokens.per_minute} for this API key, {num_left} are "
                f"left and this prompt has {num_tokens}",
                wait_ns,
            )
        self._tokens = self._tokens.after(num_tokens, now_ns)
        return None

    def spend(self, num_tokens: int, now_ns: int) -> None:
        """Take generated tokens; no running request is cut for them."""
        if self._tokens is not None:
            self._tokens = self._tokens.after(num_tokens, now_ns)

    def headers(self, now_ns: int) -> dict[str, str]:
        """Return what a client is told of its limits, in the names that clients read."""
        found: dict[str, str] = {}
        for name, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:
                full_in_ns = bucket.wait_ns(bucket.per_minute, now_ns)
                found[f"x-ratelimit-limit-{name}"] = str(bucket.per_minute)
                found[f"x-ratelimit-remaining-{name}"] = str(bucket.remaining(now_ns))
                found[f"x-ratelimit-reset-{name}"] = duration(full_in_ns)
        return found


class Accounts:
    """The accounts of all keys of this process."""

    def __init__(self) -> None:
        self._by_name: dict[str, Account] = {}

    def of(self, key: ApiKey, now_ns: int) -> Account:
        """Return a key's account, under the limits that the key has now."""
        account = self._by_name.get(key.name)
        if account is None:
            account = self._by_name[key.name] = Account(key.limits, now_ns)
        account.adopt(key.limits, now_ns)
        return account


def duration(length_ns: int) -> str:
    """Return a time as the x-ratelimit headers have it: ``0s``, ``20ms``, ``1s``, ``6m0s``."""
    if 0 < length_ns < _SECOND_NS:
        return f"{-(-length_ns // 1_000_000)}ms"
    minutes, seconds = divmod(-(-length_ns // _SECOND_NS), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _bucket(per_minute: int | None, now_ns: int) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket.full(per_minute, now_ns)


def _refusal(bound: str, wait_ns: int) -> ApiError:
    return errors.rate_limit_exceeded(bound, wait_ns / _SECOND_NS)
