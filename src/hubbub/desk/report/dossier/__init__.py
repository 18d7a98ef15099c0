"""The dossier of a run: one document for those who have to decide, not to calculate.

An annex for a data protection impact assessment, NIST's hazards, the EDPB's questions, secure
processing under the EHDS, and a model card: `chapters.txt`, with a place for each sentence of
`statements.py` and for each answer that a person has to write. A sentence reads members of the
evidence through a `Run`, which notes them; if one of them was not found to hold, the sentence is
not said (`facts.py`). Nothing here judges by law.
"""
