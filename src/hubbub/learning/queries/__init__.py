"""What a study asks that trains, scores or describes a model: one query a file."""
