"""Several processes as one: who is who, and who holds what.

Every process reads its own part of each batch, and all change the same parameters by
the mean of their gradients, which is the gradient of the whole batch.

What cuts tensors into parts takes PyTorch longer to import than all else that training
needs, so it is imported where several processes have met, and nowhere before.
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
    """Which of how many processes this one is; alone by default.

    Args:
        rank: The number of this process, from 0.
        size: How many there are.
        local_rank: Its number among those on the same machine, which picks its GPU.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "World":
        """Read what torchrun says in the environment.

        Raises:
            ValueError: If it says half of it.
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
    """Meet the other processes that torchrun has started, if there are any.

    Args:
        device: What this process computes on. Several GPUs talk through NCCL, all
            else through Gloo.
    """
    world = World.from_environment()
    if world.size > 1:
        if device.type == "cuda":
            torch.cuda.set_device(world.local_rank)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return world


def leave_world() -> None:
    """Part from the others."""
    if dist.is_initialized():
        dist.destroy_process_group()


def spread(model: nn.Module, world: World, *, shard: bool = False) -> nn.Module:
    """Return a model that averages its gradients over all processes.

    Args:
        model: The same in every process; if not, that of the first counts.
        world: Of how many.
        shard: Also cut every parameter into as many parts, of which each process
            keeps one, for models beyond one GPU. A block is put together where it is
            computed, and cut again.

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
    """Let gradients add up in each process, and not be averaged yet."""
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
    """Return all of a tensor of which every process holds a part."""
    return tensor.full_tensor() if _is_cut_up(tensor) else tensor


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """Return ``tensor`` cut up between the processes as ``like`` is."""
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
