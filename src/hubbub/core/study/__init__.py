"""The study: everything public that the parties agree on, read from `study.toml` and checked.

A `Study` says what was asked for; what follows from it is the plan's business. A study that parses
is complete and free of contradictions: all else is refused with one sentence that names the key,
the value, what was expected and what to do. `study_file` is the file as a whole, `study` what it
says and whether that is free of contradictions; `parties` and `data` hold its tables.
"""
