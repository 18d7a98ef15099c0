"""The study: everything public that the parties agree on, read from `study.toml` and checked.

A `Study` says what was asked for; what follows from it is the plan's business. A study that parses
is complete and free of contradictions: unknown keys, missing keys and values out of range are
refused with one sentence that names the key, the value, what was expected and what to do. This
package knows no records, no keys and no noise.

Each of `parties`, `data`, `model`, `training` and `privacy` holds one table of the file: its
settings and how they are read. They stand on `section` (one table, one sentence for each fault);
`contradictions`, `toml_text` and `study` stand on them.
"""
