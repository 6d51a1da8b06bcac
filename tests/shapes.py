"""Checks the shapes in the library's annotations while its tests run: ``Float[Array, "M N"]`` by jaxtyping and beartype.

Other annotations are left alone, and so are constructors: what a user passes is judged by the library's own messages,
which tests compare.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, get_args

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray


def strict_modules() -> list[str]:
    """The files and folders in which pyproject.toml makes mypy strict."""
    settings = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    (strict,) = settings["tool"]["mypy"]["overrides"]
    return [name.removesuffix(".*") for name in strict["module"]]


def has_shape(hint: Any) -> bool:
    """Whether an annotation says something about the shape of an array."""
    is_shape = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return is_shape or any(has_shape(part) for part in get_args(hint))


def shapes_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """The type checker that the import hook gets."""
    is_constructor = function.__name__ == "__init__"
    function.__annotations__ = {
        name: hint for name, hint in function.__annotations__.items() if has_shape(hint) and not is_constructor
    }
    return beartype(function)


def install() -> None:
    """Check the modules of `strict_modules` from their next import on.

    jaxtyping would wrap every function, also those inside of others whenever they are defined; those without a shape
    in their annotations stay as they are, which is a tenth of the suite's time.
    """
    wrap, known = jaxtyping.jaxtyped, dict[CodeType, bool]()

    def wrap_shapes(*, typechecker: Any) -> Callable[[Any], Any]:
        def decorate(thing: Any) -> Any:
            function = getattr(thing, "__func__", thing)
            if isinstance(thing, type):  # its methods have decorators of their own, and constructors are not checked
                return thing
            if isinstance(function, FunctionType):
                code = function.__code__
                if code not in known:
                    known[code] = any(has_shape(hint) for hint in function.__annotations__.values())
                if not known[code]:
                    return thing
            return wrap(typechecker=typechecker)(thing)

        return decorate

    jaxtyping.jaxtyped = wrap_shapes
    jaxtyping.install_import_hook(strict_modules(), f"{__name__}.{shapes_only.__name__}")
