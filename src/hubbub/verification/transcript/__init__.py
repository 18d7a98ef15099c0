"""The transcript of a session: what the aggregator sent and used, in one file that cannot change.

`frame_records` is what a file holds and how it is read, `writer` how it is written. What they add
up to is found out in `verification`.
"""

from hubbub.verification.transcript.frame_records import (
    FOLDER,
    Header,
    Kept,
    files,
    head_of,
    plain_roster,
    read,
    read_header,
    roster_of,
)
from hubbub.verification.transcript.writer import Transcript, recover
