"""Named parts of a client's parameters: what a parameter channel carries, averages and writes back."""

from __future__ import annotations

from torch import Tensor, nn

from fedsaf.core.contracts import Client

AUXILIARY = "auxiliary:"


def scope_module(client: Client, scope: str) -> nn.Module:
    """Return the module of a scope.

    Args:
        client: a federated client.
        scope: ``all`` (the client's model), ``backbone``, ``head``, or ``auxiliary:<name>``.

    Raises:
        ValueError: unknown scope.
    """
    if scope.startswith(AUXILIARY):
        return client.auxiliary[scope.removeprefix(AUXILIARY)]
    modules = {"all": client.model, "backbone": client.model.backbone, "head": client.model.head}
    if scope not in modules:
        raise ValueError(f"scope {scope!r} is unknown; choose one of {', '.join(modules)} or {AUXILIARY}<name>")
    return modules[scope]


def read_scope(client: Client, scope: str) -> dict[str, Tensor]:
    """Return CPU copies of the parameters and buffers of a scope, by name."""
    return {name: tensor.detach().cpu().clone() for name, tensor in scope_module(client, scope).state_dict().items()}


def write_scope(client: Client, scope: str, tensors: dict[str, Tensor]) -> None:
    """Replace the named parameters and buffers of a scope by copies of these tensors; others stay.

    The client's former tensors are left untouched, since during evaluation they are the stored state itself.

    Raises:
        RuntimeError: unknown name, or another shape.
    """
    module = scope_module(client, scope)
    former = module.state_dict()
    moved = {}
    for name, tensor in tensors.items():
        if name not in former:
            raise RuntimeError(f"scope {scope!r} has no {name}; the models that share it must have the same shape")
        moved[name] = _copy_like(tensor, former[name])
    module.load_state_dict(moved, strict=False, assign=True)


def _copy_like(tensor: Tensor, former: Tensor) -> Tensor:
    """Return a copy of ``tensor`` on the device and in the memory layout of ``former``.

    Raises:
        RuntimeError: for another shape.
    """
    if tensor.shape != former.shape:
        raise RuntimeError(f"a tensor of shape {tuple(tensor.shape)} cannot replace one of {tuple(former.shape)}")
    copy = former.detach().clone()
    copy.copy_(tensor)
    return copy
