"""What a study asks that answers with statistics or synthetic records: one query a file."""
