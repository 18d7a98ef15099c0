"""The transcript of a session: what the aggregator sent and used, in one file that cannot change.

`frame_records` is what a file holds and how it is read, `writer` how it is written. What they add
up to is found out in `verification`.
"""
