"""The command ``tested-transformer``: train, generate, evaluate, heads, check, info."""

from tested_transformer.cli.command import main

__all__ = ["main"]
