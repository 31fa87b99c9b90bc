"""What HTTP, Ray Serve and streaming cost beside the engine in process."""
