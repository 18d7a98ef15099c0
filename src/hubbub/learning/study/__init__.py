"""Keys of a study that trains a model: of it, its training, validation and coefficients."""
