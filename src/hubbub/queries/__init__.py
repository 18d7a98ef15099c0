"""What a study asks of its silos, a file for each kind of query; and the plan of all of them.

A new kind is a file here with a `Query`, and the line of `study_queries` that finds it in a study.
"""
