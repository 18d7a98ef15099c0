"""From files of records, however messy, to a first study file, and from a study to all faults.

Whatever is made here stays on the machine where the files lie. `hubbub init` drafts a study from
cells, so its bounds and spellings are values taken from records until people have agreed on them or
replaced them; `hubbub check` lists what a run would refuse. A run itself uses neither.
"""
