"""Programs that run only on the public host."""
