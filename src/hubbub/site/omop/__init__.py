"""Records from a database in the OMOP common data model, 5.4: a cohort and columns, by concept."""
