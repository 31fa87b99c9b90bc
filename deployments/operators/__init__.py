"""What operators see and order: the fleet's state, its decisions, pins, memory and drain."""
