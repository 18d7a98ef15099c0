"""Tables of records: how the cells of a file become the features and targets of one silo."""
