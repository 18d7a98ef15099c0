"""Records from a database: a query of the study, checked, by a connection of the site."""
