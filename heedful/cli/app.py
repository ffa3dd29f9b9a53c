"""`heedful` and its commands: the errors for unknown options have hints, and each has --quiet and --verbose."""

from __future__ import annotations

import functools
import inspect
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from heedful.cli.align import align
from heedful.cli.caption import caption
from heedful.cli.compare import compare
from heedful.cli.convert import convert
from heedful.cli.corpus import corpus
from heedful.cli.demo import demo
from heedful.cli.distill import distill
from heedful.cli.evaluate import evaluate
from heedful.cli.info import info
from heedful.cli.output import debug, set_up_logging
from heedful.cli.readout import readout
from heedful.cli.report import report
from heedful.cli.score import score
from heedful.cli.see import see
from heedful.cli.serve import serve
from heedful.cli.train import train
from heedful.cli.translate import translate
from heedful.errors import ConfigError, __version__

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more: device, threads, batches, timings.")]
# In the order of the help. To add one, see CONTRIBUTING.md, "Add a command".
COMMANDS = (
    *(demo, corpus, train, distill, translate, caption, serve, see, evaluate),
    *(compare, report, score, align, readout, info, convert),
)


class HintingGroup(TyperGroup):
    """`heedful`: the error for an option of the commands hints that it goes after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (of typer's own copy of click)
        """Parse what precedes the command."""
        with _hinting(_placement):
            return super().parse_args(ctx, args)


class HintingCommand(TyperCommand):
    """A command: if it has --set, the error for an option that is a setting hints how to set it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse what follows the command."""
        has_set = any("--set" in param.opts for param in self.params)
        with _hinting(_setting if has_set else lambda option: ""):
            return super().parse_args(ctx, args)


@contextmanager
def _hinting(hint_for: Callable[[str], str]) -> Iterator[None]:
    """Add a hint to the error for an unknown option."""
    try:
        yield
    except Exception as error:
        # Its class is click's, or that of the copy of click that newer versions of typer have.
        if type(error).__name__ == "NoSuchOption" and (hint := hint_for(error.option_name)):  # type: ignore[attr-defined]
            error.message = f"{error.message}. {hint}"  # type: ignore[attr-defined]
            error.possibilities = None  # type: ignore[attr-defined]
        raise


def _placement(option: str) -> str:
    of_commands = ("--quiet", "-q", "--verbose", "-v")
    return f"It goes after the command: heedful COMMAND {option}" if option in of_commands else ""


def _setting(option: str) -> str:
    """Return how to set the setting that an option is called like, or ""."""
    from heedful.config import section_of
    from heedful.errors import ELSEWHERE

    known = section_of()
    name = option.removeprefix("--").replace("-", "_")
    name = ELSEWHERE.get(name, name)
    key = "family" if name == "model" else name
    return f"It is a setting: --set {known[name]}.{key}=…" if name in known else ""


def with_verbosity(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with --quiet and --verbose added, which set up logging before it runs."""
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


app = typer.Typer(
    name="heedful",
    cls=HintingGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for each in COMMANDS:
    app.command(cls=HintingCommand)(with_verbosity(each))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _heedful(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train translation models with attention, translate, and see the attention of every word."""
