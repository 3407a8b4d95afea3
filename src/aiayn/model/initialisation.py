"""Finds the linear layers of an extension's sub-layer that write into the residual stream; their
weights start smaller (docs/fidelity.md).
"""

from contextlib import suppress
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from aiayn.model.attention import MultiHeadAttention


def last_linears(sublayer: nn.Module, d_model: int) -> list[nn.Linear]:
    """Returns the linear layers of a sub-layer that have `d_model` outputs and that no other one
    follows. Several are returned if their outputs are added up, or if they share a `ModuleList`, as
    experts do.
    """
    linears = {
        name: module for name, module in sublayer.named_modules() if isinstance(module, nn.Linear)
    }
    last: list[str] = []
    with suppress(Exception):  # code that needs other inputs
        called, last = _called_and_last(sublayer, d_model)
        groups = {_group(sublayer, name) for name in last}
        last += [name for name in linears.keys() - called if _group(sublayer, name) in groups]
    outputs = [linears[name] for name in last if linears[name].out_features == d_model]
    return outputs or _last_attributes(sublayer, d_model)


def _called_and_last(sublayer: nn.Module, d_model: int) -> tuple[set[str], list[str]]:
    """Computes a sub-layer of two positions. Returns the names of the linear layers that are
    called, and of those whose output reaches its own through no other one.
    """
    trial = deepcopy(sublayer).eval().requires_grad_(False)  # a forward pass may change it
    x, mask = torch.ones(1, 2, d_model), torch.ones(1, 1, 2, 2, dtype=torch.bool)
    inputs = (x, x, mask) if isinstance(trial, MultiHeadAttention) else (x,)
    called, last, followed = set[str](), list[str](), ""

    def cut(name: str, _module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        called.add(name)
        return output.detach().requires_grad_(name == followed)

    names = [name for name, module in trial.named_modules() if isinstance(module, nn.Linear)]
    for name in names:
        trial.get_submodule(name).register_forward_hook(partial(cut, name))
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        for followed in names:
            if trial(*inputs).requires_grad:
                last.append(followed)
    return called, last


def _group(part: nn.Module, name: str) -> str:
    """Returns a module's name, with `*` for its place in a `ModuleList` or `ModuleDict`."""
    path = ""
    for child in name.split("."):
        path += ".*" if isinstance(part, nn.ModuleList | nn.ModuleDict) else f".{child}"
        part = part.get_submodule(child)
    return path


def _last_attributes(part: nn.Module, d_model: int) -> list[nn.Linear]:
    """Returns the last linear layer with `d_model` outputs in the order of attributes, or that of
    each module of a `ModuleList`.
    """
    for child in reversed([*part.children()]):
        if isinstance(child, nn.Linear):
            linears = [child] if child.out_features == d_model else []
        elif isinstance(child, nn.ModuleList):
            linears = [linear for module in child for linear in _last_attributes(module, d_model)]
        else:
            linears = _last_attributes(child, d_model)
        if linears:
            return linears
    return []
