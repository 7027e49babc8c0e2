"""Command line: one file a command.

Nothing here imports torch, scipy or matplotlib: a command does when it runs.
"""

import sys
import traceback
from collections.abc import Sequence

import typer

from rheocheck.certificate import EXIT_CODES, INPUT_ERROR_EXIT_CODE, Verdict
from rheocheck.cli.audit import audit
from rheocheck.cli.bench import bench
from rheocheck.cli.bounds import bounds
from rheocheck.cli.certify import certify
from rheocheck.cli.check_certificate import check_certificate
from rheocheck.errors import RheocheckError

# Of typer, as shells count an interrupt.
INTERRUPTED_EXIT_CODE = 130

app = typer.Typer(
    name="rheocheck",
    help="Proves that a speculative-decoding sampler is lossless, or shows where it is not.",
    epilog="Exit codes: 0 certified or no evidence, 1 lossy, 2 usage or input error, 3 suspect or "
    "inconclusive, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="certify")(certify)
app.command(name="audit")(audit)
app.add_typer(bounds)
app.command(name="bench")(bench)
app.command(name="check-certificate")(check_certificate)


def _print_version(wanted: bool) -> None:
    if wanted:
        from rheocheck import __version__

        typer.echo(f"rheocheck {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and exit.",
        is_eager=True,
        callback=_print_version,
    ),
) -> None:
    """Proves that a speculative-decoding sampler is lossless, or shows where it is not."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code that the verdict stands for.

    Args:
      arguments: Words after the program's name; None takes them from the process.

    Raises:
      SystemExit: Always. 0, 1 and 3 are verdicts, 2 is a usage or input error, 130 an interrupt; a
        RheocheckError is
        one paragraph on standard error, without a traceback. An exception that nobody foresaw
        shows its traceback and exits with 3, inconclusive. A reader of the output that leaves early
        (`| head -1`) changes neither files nor exit code.
    """
    from rheocheck.cli.console import print_error
    from rheocheck.cli.streams import tolerant_streams

    with tolerant_streams():
        try:
            app(args=None if arguments is None else list(arguments))
        except SystemExit as left:
            if left.code == INTERRUPTED_EXIT_CODE:
                print_error("interrupted; nothing was concluded")
            raise
        except RheocheckError as error:
            print_error(str(error))
            sys.exit(INPUT_ERROR_EXIT_CODE)
        except OSError as error:
            print_error(f"a file could not be read or written: {error}")
            sys.exit(INPUT_ERROR_EXIT_CODE)
        except Exception:
            # A defect of ours: neither a pass nor an accusation, so not Python's exit code 1.
            traceback.print_exc()
            print_error("rheocheck itself failed, as shown above; nothing was concluded")
            sys.exit(EXIT_CODES[Verdict.INCONCLUSIVE])
