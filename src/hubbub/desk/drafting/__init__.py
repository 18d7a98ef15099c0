"""From files of records, however messy, to a first study file, and from a study to all faults.

What `hubbub init` drafts are values taken from records until people have agreed on them or replaced
them. A run itself uses nothing of this room.
"""
