"""The dossier of a run: one document for those who have to decide, not to calculate.

An annex for a data protection impact assessment, NIST's hazards, the EDPB's questions, secure
processing under the EHDS, and a model card (`chapters/`). A sentence reads members of the evidence
through a `Reader`, which notes them; if one of them was not found to hold, the sentence is not said
(`facts.py`). What a person has to write is a blank with a name (`parts.py`). Nothing here judges by
law. `html_page.py` and `word_file.py` draw the same parts.
"""
