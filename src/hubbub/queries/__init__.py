"""What a study asks of its silos, a file for each kind of query; and the plan of all of them.

A new kind is a file here with a `Query`, and the `Ask` that gives it, registered in pyproject.toml.
"""
