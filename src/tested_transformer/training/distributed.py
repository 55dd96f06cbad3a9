"""Train in several processes, and gather or divide their tensors.

Every process reads its own part of each batch, and all update the parameters with the
mean of their gradients, which is the gradient of the whole batch. Only the balance loss
of a mixture of experts differs: each process computes its own from its own tokens.

PyTorch's sharded tensors take longer to import than everything else that training
needs, so they are imported only once several processes have joined.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = [
    "World",
    "gathered",
    "gradients_stay",
    "join_world",
    "leave_world",
    "mean_over",
    "share_of",
    "spread",
]


@dataclass(frozen=True)
class World:
    """The number of this process among all processes; a single process by default.

    Args:
        rank: The number of this process, from 0.
        size: How many processes there are.
        local_rank: Its number on this machine, which selects its GPU.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "World":
        """Read the environment variables that torchrun sets.

        Raises:
            ValueError: If only some of them are set.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        missing = [name for name in names if name not in environment]
        if len(missing) == len(names):
            return cls()
        if missing:
            raise ValueError(
                f"the environment lacks {', '.join(missing)}: start with torchrun"
            )
        return cls(*(int(environment[name]) for name in names))


def join_world(device: torch.device) -> World:
    """Join the other processes that torchrun has started, if there are any.

    Args:
        device: The device of this process. GPUs communicate through NCCL, other devices
            through Gloo.
    """
    world = World.from_environment()
    if world.size > 1:
        if device.type == "cuda":
            torch.cuda.set_device(world.local_rank)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return world


def leave_world() -> None:
    """Leave the group of processes."""
    if dist.is_initialized():
        dist.destroy_process_group()


def spread(model: nn.Module, world: World, *, shard: bool = False) -> nn.Module:
    """Return a model that averages its gradients over all processes.

    Args:
        model: The model, in every process. The first process's weights are copied to
            the others.
        world: Which of the processes this is.
        shard: Also divide every parameter among the processes, for models too large for
            one GPU. The parameters of a block are gathered while it is computed.

    Sources: Li et al., 2020, "PyTorch Distributed"; Zhao et al., 2023, "PyTorch FSDP".
    """
    if world.size == 1:
        return model
    if not shard:
        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if not isinstance(model, FSDPModule):
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (world.size,))
        for block in model.get_submodule("blocks").children():
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def gradients_stay(model: nn.Module, stay: bool) -> AbstractContextManager[object]:
    """Accumulate gradients in each process without averaging them yet, if ``stay``."""
    if isinstance(model, DistributedDataParallel) and stay:
        return model.no_sync()
    if dist.is_initialized():
        from torch.distributed.fsdp import FSDPModule

        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(not stay)
    return nullcontext()


def mean_over(world: World, values: Tensor) -> Tensor:
    """Average a tensor over all processes."""
    if world.size > 1:
        dist.all_reduce(values)
        values /= world.size
    return values


def gathered(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that is divided among the processes."""
    return tensor.full_tensor() if _is_cut_up(tensor) else tensor


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """Return ``tensor`` divided among the processes in the same way as ``like``."""
    if not _is_cut_up(like):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh
    everywhere = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim)
    return everywhere.redistribute(mesh, like.placements)


def _is_cut_up(tensor: Tensor) -> TypeGuard["DTensor"]:
    if not dist.is_initialized():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)
