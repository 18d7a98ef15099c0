"""The study: everything public that the parties agree on, read from `study.toml` and checked.

A `Study` says what was asked for; what follows from it is the plan's business. A study that parses
is complete and free of contradictions: unknown keys, missing keys and values out of range are
refused with one sentence that names the key, the value, what was expected and what to do. This
package knows no records, no keys and no noise.

`parties` and `data` hold tables of the file: their settings and how they are read. `study_file` is
the file as a whole, `study` what it says and whether that is free of contradictions.
"""
