"""The command line: one file per verb. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import time

from heedful.cli.output import EscapedStream, set_up_logging, underlying
from heedful.errors import HeedfulError, printable

__all__ = ["main"]

# A path that cannot be: the user's mistake. Anything else the system refuses is not.
THEIRS = {errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ELOOP}


def main() -> None:
    """Run `heedful`: 0 done, 2 the user's mistake, 1 anything else, 130 for Ctrl-C."""
    # What was closed before the start is None: nothing can be written there, and messages go nowhere.
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
        _say_once(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.filename is None:
            _leave_stdout(error)
        _report(f"{error.filename}: {error.strerror}")
        sys.exit(2 if error.errno in THEIRS else 1)
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            _leave_stdout(error)


class _Closed(io.StringIO):
    """Standard output that was closed: what is written there fails, as it would for any other program."""

    def write(self, text: str) -> int:
        """Refuse."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _say_once(error: HeedfulError) -> None:
    """Say what was wrong; of several processes on a machine, only the first speaks of what all of them found."""
    rank = os.environ.get("LOCAL_RANK", "0")
    if error.reported or (error.exit_code == 2 and rank.isdigit() and rank != "0"):
        time.sleep(5)  # whoever started them ends all when one ends: the first must have spoken by then
    else:
        _report(str(error), newlines=error.multiline)


def _report(message: str, newlines: bool = False) -> None:
    """Print an error; a line break in it comes from data, such as a file name, unless `newlines` says otherwise."""
    print(f"heedful: {printable(message, newlines)}", file=sys.stderr)


def _leave_stdout(error: OSError) -> None:
    """Say that results could not be written; when the reader has gone away (`| head`), say nothing."""
    if error.errno != errno.EPIPE:
        _report(f"the output cannot be written ({error.strerror})")
    sys.stdout = io.StringIO()  # nothing more can be written there, not even when Python ends
    sys.exit(1)
