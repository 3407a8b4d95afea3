"""Detects what a subclass, a hook or a parametrization changes about a module."""

from typing import TypeGuard, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_exactly(module: object, cls: type[M]) -> TypeGuard[M]:
    """Returns whether a module is of this class and no subclass, without hooks, parametrizations or
    methods of its own.

    Only such a module may be replaced by a faster version. A parametrization changes a module's
    class. Submodules are not checked.
    """
    if type(module) is not cls:
        return False
    has_hooks = any(getattr(module, hooks) for hooks in HOOKS)
    return not has_hooks and not any(callable(getattr(cls, name, None)) for name in vars(module))


def has_own_reset(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Returns whether an extension, not torch or this program, defines how the module's weights are
    drawn.
    """
    owner = next(
        (base for base in type(module).__mro__ if "reset_parameters" in vars(base)), nn.Module
    )
    return owner.__module__.partition(".")[0] not in ("torch", "aiayn")
