"""The command line: `hubbub`, and `python -m hubbub` where its script is not on the path."""

import os
import sys


def program() -> None:
    """Run the command that was typed; whoever ends it while libraries are read sees a sentence."""
    try:
        from hubbub.desk.cli import main
    except KeyboardInterrupt:
        sys.stderr.write("hubbub: interrupted\n")
        os._exit(130)
    main.program()


if __name__ == "__main__":
    program()
