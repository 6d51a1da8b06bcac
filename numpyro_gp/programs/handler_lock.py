"""One thread at a time where NumPyro's handlers stand: it keeps all of them on one stack, which its threads share.

A server predicts from several threads, and a model that runs in one would meet the handlers of another. So whatever
enters handlers here, and whatever traces what may, waits for its turn. Compiled programs run outside of it: what
trains, and a predictor that knows its program, hold up nobody.

Errors that come out of here show the user's own frames. Those of this library and of NumPyro's handlers are hidden, as
JAX hides its own; ``NUMPYRO_GP_TRACEBACK_FILTERING=off`` in the environment shows them.
"""

import functools
import os
import threading
import types
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

from numpyro import handlers, primitives

from numpyro_gp.arrays import Function

# A thread that has its turn may take it again: programs that are traced hold others.
turn = threading.RLock()
HIDDEN = (str(Path(__file__).parents[1]) + os.sep, handlers.__file__, primitives.__file__)


def alone(function: Function) -> Function:
    """A function that runs in one thread at a time, with all others of this kind."""
    return with_short_errors(function, turn)


def with_short_errors(function: Function, lock: AbstractContextManager[object] = nullcontext()) -> Function:  # noqa: B008
    """A function whose errors show no frames of this library, its own included; it runs inside of ``lock``."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        try:
            with lock:
                return function(*args, **kwargs)
        except Exception as error:  # of the user's model, whatever it is: it goes on, with fewer frames
            if os.environ.get("NUMPYRO_GP_TRACEBACK_FILTERING") != "off":
                error.__traceback__ = _shortened(error.__traceback__)
            raise

    return cast("Function", call)


def _shortened(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames that are hidden; that of the caller of this library comes before it."""
    if trace is None:
        return None
    rest = _shortened(trace.tb_next)
    if trace.tb_frame.f_code.co_filename.startswith(HIDDEN):
        return rest
    return types.TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
