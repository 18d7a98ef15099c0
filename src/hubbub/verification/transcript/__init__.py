"""The transcript of a session: what the aggregator sent and used, in one file that cannot change.

`transcript_header` and `frame_records` are what a file holds and how it is read, `writer` how it
is written. What they add
up to is found out in `verification`.
"""

from hubbub.verification.transcript.frame_records import (
    FOLDER,
    Kept,
    files,
    head_of,
    read,
    read_header,
)
from hubbub.verification.transcript.transcript_header import Header, plain_roster, roster_of
from hubbub.verification.transcript.writer import Transcript, recover
