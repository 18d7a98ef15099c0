"""For a paper: tables with captions, the methods sentence, the flow of records, figures as files.

It reads what `statistics.json` has and makes text or bytes; nothing here knows folders or sums.
"""
