"""What can be wrong with what an operator asks of the policy."""


class PolicyError(Exception):
    """A limit, a pin or a table cannot work. The message names the field, the value and a fix."""
