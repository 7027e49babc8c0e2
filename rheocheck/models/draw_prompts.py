"""Draw an audit's prompts from the held-out files of the tiny pair's corpus.

    apt-get download python3.11-doc && dpkg-deb -x python3.11-doc_*.deb docs
    python -m rheocheck.models.draw_prompts \\
        --corpus docs/usr/share/doc/python3.11/html/_sources --out prompts.jsonl

With the defaults and that package's version 3.11.2 it writes the committed file, byte for byte. The
population is defined in rheocheck/audit/data/README.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rheocheck.models.corpus import PROMPT_KEY, draw_prompts, read_corpus, write_prompts

# 4,603 certify a mean of 0.1 % at 99 %.
NUM_PROMPTS = 4800


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, draw and write."""
    parser = argparse.ArgumentParser(
        prog="python -m rheocheck.models.draw_prompts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder of text files")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--count", type=int, default=NUM_PROMPTS, help="default %(default)s")
    parser.add_argument("--key", default=PROMPT_KEY, help="of the draws, default '%(default)s'")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"--count {options.count}: must be at least 1")
    held_out = read_corpus(options.corpus).held_out
    write_prompts(draw_prompts(held_out, options.count, options.key), options.out)


if __name__ == "__main__":
    main()
