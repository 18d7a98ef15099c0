"""A coverage-guided fuzzer for everything that reads what another party, or a disk, says.

One target per file, each with `check(data)`, `seeds()` and, if its input is a text, `WORDS`. No
target needs the fuzzer: the kept corpus is replayed by an ordinary test. See README.md.
"""
