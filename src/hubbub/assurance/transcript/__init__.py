"""The transcript of a session: what the aggregator sent and used, in one file that cannot change.

`header` is what a file begins with, `frame_records` its records and how they are read, `writer` how
they are written. What they add up to is found out in `verification`.
"""

from hubbub.assurance.transcript.frame_records import (
    FOLDER,
    Kept,
    files,
    head_of,
    read,
    read_header,
)
from hubbub.assurance.transcript.header import Header, plain_roster, roster_of
from hubbub.assurance.transcript.writer import Transcript, recover
