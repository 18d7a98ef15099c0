"""The dossier of a run: one document for those who have to decide, not to calculate.

`chapters.txt` has a place for each sentence of `statements.py` and for each answer that a person
has to write. A sentence whose evidence was not found to hold is not said. Nothing judges by law.
"""
