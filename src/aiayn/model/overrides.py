"""What a subclass, a hook or a parametrization changes about a module, and whether all code that should see it does."""

from typing import TypeGuard, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class HalfOverriddenError(TypeError):
    """A subclass overrides a method, and not the others that compute the same in a search."""


def is_exactly(module: object, kind: type[M]) -> TypeGuard[M]:
    """Whether a module is of this class and no subclass, without hooks, parametrizations or methods of its own.

    Only such a module may be computed in another way. A parametrization gives a module a class of its own. What its
    submodules are is another question.
    """
    if type(module) is not kind:
        return False
    has_hooks = any(getattr(module, hooks) for hooks in HOOKS)
    return not has_hooks and not any(callable(getattr(kind, name, None)) for name in vars(module))


def has_own_reset(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether code of an extension, neither torch's nor this program's, says how the module's weights are drawn."""
    owner = next((kind for kind in type(module).__mro__ if "reset_parameters" in vars(kind)), nn.Module)
    return owner.__module__.partition(".")[0] not in ("torch", "aiayn")


def refuse_half_overridden(module: nn.Module, method: str, *others: str) -> None:
    """Raises HalfOverriddenError if the class that defines `method` is derived from one that defines another of them.

    To say that another one holds all the same, a subclass may set it to what it was, as in `step = DecoderLayer.step`.
    """

    def depth(name: str) -> int:
        return next(number for number, kind in enumerate(type(module).__mro__) if name in vars(kind))

    for other in others:
        if depth(method) < depth(other):
            name = type(module).__name__
            raise HalfOverriddenError(
                f"{name} overrides {method} and not {other}, which a search calls instead: it would not translate as "
                f"it trains; override {other}, too"
            )
