"""What to compute on, as it was typed."""

import argparse

import torch

from tested_transformer.cli.options import check_at_least
from tested_transformer.training import choose_device

__all__ = ["use_machine"]


def use_machine(arguments: argparse.Namespace) -> torch.device:
    """Use as many threads as were asked for, and return the device.

    Raises:
        ValueError: If there is no such device, or the number is not positive.
    """
    device = choose_device(arguments.device or "auto")
    check_at_least(1, "threads", arguments.threads)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    return device
