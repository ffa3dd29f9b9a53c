"""The command line: one file per verb. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import errno
import io
import os
import sys
import time

from heedful.errors import HeedfulError

__all__ = ["main"]

# A path that cannot be: the user's mistake. Anything else the system refuses is not.
THEIRS = {errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ELOOP}


def main() -> None:
    """Run `heedful`: 0 done, 2 the user's mistake, 1 anything else, 130 for Ctrl-C."""
    # What was closed before the start is None: nothing can be written there, and messages go nowhere.
    sys.stdout, sys.stderr = sys.stdout or _Closed(), sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
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
        print(f"heedful: {error.filename}: {error.strerror}", file=sys.stderr)
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
    if error.told or (error.exit_code == 2 and os.environ.get("LOCAL_RANK", "0") != "0"):
        time.sleep(5)  # whoever started them ends all when one ends: the first must have spoken by then
    else:
        print(f"heedful: {error}", file=sys.stderr)


def _leave_stdout(error: OSError) -> None:
    """Say that results could not be written; when the reader has gone away (`| head`), say nothing."""
    if error.errno != errno.EPIPE:
        print(f"heedful: the output cannot be written ({error.strerror})", file=sys.stderr)
    sys.stdout = io.StringIO()  # nothing more can be written there, not even when Python ends
    sys.exit(1)
