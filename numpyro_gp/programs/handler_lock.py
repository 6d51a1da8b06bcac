"""One thread at a time where NumPyro's handlers stand: it keeps all of them on one stack, which its threads share.

A server predicts from several threads, and a model that runs in one would meet the handlers of another. So whatever
enters handlers here, and whatever traces what may, waits for its turn. Compiled programs run outside of it: what
trains, and a predictor that knows its program, hold up nobody.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
# A thread that has its turn may take it again: programs that are traced hold others.
turn = threading.RLock()


def alone(function: Function) -> Function:
    """A function that runs in one thread at a time, with all others of this kind."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        with turn:
            return function(*args, **kwargs)

    return cast("Function", call)
