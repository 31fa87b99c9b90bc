"""The edge: Ray Serve and HTTP around the engine."""

from deployments.origin import require_own_engine

# Before any other module of this package: they import the engine by name.
require_own_engine()
