"""Running a study: all I/O, clocks and disks are in here.

`local.py` trains in one process and needs torch; `sums.py` is the secure sum alone and does not.
"""
