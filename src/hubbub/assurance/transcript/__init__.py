"""The transcript of a session: what the aggregator sent and used, in one file that cannot change.

`heading` is what a file says first, `kept` its records and how they are read, `writing` how they
are written. What they add up to is found out in `verification`.
"""

from hubbub.assurance.transcript.frame_records import files
from hubbub.assurance.transcript.writer import Transcript, recover

__all__ = ["Transcript", "files", "recover"]
