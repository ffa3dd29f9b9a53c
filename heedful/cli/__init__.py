"""The command line: one file per command. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import time

from heedful.cli.output import EscapedStream, set_up_logging, underlying, with_options
from heedful.errors import HeedfulError, printable

__all__ = ["main"]

# Errors of a wrong path are the user's mistake; other errors of the system are not.
USER_ERRORS = {errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ELOOP}


def main() -> None:
    """Run `heedful`: 0 done, 2 the user's mistake, 1 anything else, 130 for Ctrl-C."""
    # A stream that was closed before the start is None: writing results fails, and messages are dropped.
    streams = underlying(sys.stdout or _Closed()), underlying(sys.stderr or io.StringIO())
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout, sys.stderr = EscapedStream(streams[0]), EscapedStream(streams[1], lenient=True)
    set_up_logging()
    logging.captureWarnings(True)
    try:
        from heedful.cli.app import app

        app()
    except HeedfulError as error:
        _report_once(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.filename is None:
            _leave_stdout(error)
        _report(f"{error.filename}: {error.strerror}")
        sys.exit(2 if error.errno in USER_ERRORS else 1)
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            _leave_stdout(error)


class _Closed(io.StringIO):
    """Closed standard output: writing fails, as for any other program."""

    def write(self, text: str) -> int:
        """Raise OSError."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _report_once(error: HeedfulError) -> None:
    """Print an error; of several processes on a machine, only the first prints one that all of them have."""
    rank = os.environ.get("LOCAL_RANK", "0")
    if error.reported or (error.exit_code == 2 and rank.isdigit() and rank != "0"):
        time.sleep(5)  # torchrun ends all when one ends: the first has to print before
    else:
        _report(with_options(str(error)), newlines=error.multiline)


def _report(message: str, newlines: bool = False) -> None:
    """Print an error; without `newlines`, line breaks are escaped: they come from data, such as a file name."""
    print(f"heedful: {printable(message, newlines)}", file=sys.stderr)


def _leave_stdout(error: OSError) -> None:
    """Print that results could not be written, and exit; print nothing if the reader has closed the pipe (`| head`)."""
    if error.errno != errno.EPIPE:
        _report(f"the output cannot be written ({error.strerror})")
    sys.stdout = io.StringIO()  # so that Python does not flush it at exit
    sys.exit(1)
