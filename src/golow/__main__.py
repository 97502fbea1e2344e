"""The entry of ``golow`` and ``python -m golow``: Ctrl-C ends it with one line and status 130.

Ctrl-C is handled as soon as this module is loaded, before anything else of golow is. What comes
earlier, while Python itself starts and finds the module, cannot be handled here.

* While the command line is imported, there is nothing to clean up: Ctrl-C ends the process at once.
* Then it raises KeyboardInterrupt, as usual: commands end their workers and show what they have.
  A second Ctrl-C does the same at the point it interrupts.
* When the command has ended, remaining temporary folders are removed, and the process ends.
  In its last moments, when Python handles no signals any more, Ctrl-C changes nothing.

SIGTERM does the same as Ctrl-C.
"""

from __future__ import annotations

# Not `signal`: it first imports enum, five milliseconds in which Ctrl-C would show a traceback.
import _signal  # type: ignore[import-not-found]
import atexit
import os
import sys

TYPE_CHECKING = False  # nor typing, for the same reason
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    if _LISTENING:  # the first to be registered, and so the last to be called
        atexit.register(_signal.signal, _signal.SIGINT, _signal.SIG_IGN)
    from golow import cli

    if _LISTENING:
        _signal.signal(_signal.SIGINT, _interrupt)
        _signal.signal(_signal.SIGTERM, _forward)
        _signal.signal(_signal.SIGALRM, _forward)
        sys.unraisablehook = _unraisable
    try:
        cli.main()
    except KeyboardInterrupt:
        _end()
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            _end()
        raise
    finally:
        if _LISTENING:
            _signal.signal(_signal.SIGINT, _end)
        if "torch" in sys.modules:  # its compiler leaves an empty folder, whoever imported it
            from golow.storage.scratch import remove_own

            remove_own()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, except where nothing would catch it."""
    if frame is None or frame.f_globals is globals() or _is_torch_loading():
        _end()
    raise KeyboardInterrupt


def _is_torch_loading() -> bool:
    """True while PyTorch is imported: its C++ code then calls Python and aborts on an exception
    from it. Nothing is measured before that."""
    return getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)


def _forward(number: int, frame: FrameType | None) -> None:
    """Handle the signal as Ctrl-C would be handled now."""
    _signal.getsignal(_signal.SIGINT)(number, frame)


def _unraisable(dropped: sys.UnraisableHookArgs) -> None:
    """Python drops an exception in a destructor; Ctrl-C comes again when that has ended."""
    if dropped.exc_type is KeyboardInterrupt:
        _signal.setitimer(_signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(dropped)


def _end(*_: object) -> NoReturn:
    """Remove remaining temporary folders, without interruption, and leave."""
    try:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        from golow.storage.scratch import remove_own

        remove_own()
        _signal.signal(_signal.SIGINT, _leave)  # flushing blocks if the reader has gone
        sys.stdout.flush()
    finally:
        _leave()


def _leave(*_: object) -> NoReturn:
    """End the process, without waiting for its threads: one may still be compiling."""
    try:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # or there would be two lines
        os.write(2, b"golow: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


# A shell starts background jobs with Ctrl-C ignored, and that stays.
_LISTENING = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _LISTENING:
    _signal.signal(_signal.SIGINT, _leave)

if __name__ == "__main__":
    main()
