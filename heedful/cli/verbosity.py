"""`--quiet` and `--verbose`, which every command has."""

from __future__ import annotations

import functools
import inspect
import platform
import time
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any

import typer

from heedful.cli.output import debug, set_up_logging
from heedful.config import __version__
from heedful.errors import ConfigError

__all__ = ["with_verbosity"]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: device, threads, batches, timings.")]


def with_verbosity(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes --quiet and --verbose too, and sets up logging by them before it runs."""
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*args: Any, quiet: bool = False, verbose: bool = False, **options: Any) -> Any:  # noqa: ANN401
        if quiet and verbose:
            raise ConfigError("--quiet and --verbose exclude each other; give one of them")
        set_up_logging(quiet, verbose)
        began = time.perf_counter()
        debug(f"heedful {__version__}, Python {platform.python_version()}, {command.__name__}")
        result = command(*args, **options)
        debug(f"done after {time.perf_counter() - began:.2f} s")
        return result

    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", Quiet), ("verbose", Verbose))
    ]
    parameters = [*signature.parameters.values(), *more]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run
