"""`python -m hubbub`: the command line, where its script is not on the path."""

import sys

from hubbub.desk.cli.main import main

sys.exit(main())
